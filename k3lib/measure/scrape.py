"""
The metrics of a running engine: its text once, or one line a second with its memory and its GPUs.

A peak that lasts less than the period can be missed, and vLLM's own log line every ten seconds is no
peak meter; counters such as preemptions cannot be missed. Each line is flushed, so it survives a kill.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, TextIO

import orjson

from k3lib.logs.metrics import parse_metrics, summarize_watched
from k3lib.measure.http import Getter

GpuReader = Callable[[], list[dict[str, Any]]]


@dataclass(frozen=True)
class SamplingResult:
    """
    How the sampling went.

    Args:
        samples: Lines written.
        missed: Seconds of the schedule that passed without a line, because one took too long.
        failure: Why it ended by itself, or None.
    """

    samples: int
    missed: int
    failure: str | None


def scrape_metrics(base_url: str, *, timeout_s: float = 5.0, api_key: str | None = None) -> bytes | None:
    """
    The body of /metrics, to be kept as raw evidence or parsed.

    Args:
        base_url: Address of the engine, with or without `/v1`.
        timeout_s: For connecting and for each read, seconds.
        api_key: Sent as a bearer token, or None; vLLM leaves /metrics open (0.32.0).

    Returns:
        The bytes, or None if the engine did not give them.

    Raises:
        SpecError: The address is not one.
    """
    with Getter(base_url, timeout_s=timeout_s, api_key=api_key) as getter:
        answer = getter.get("/metrics")
    return answer.body if answer.error is None else None


class Sampler:
    """
    Samples in a thread of its own until it is stopped; never raises and never holds the program up.

    Args:
        base_url: Address of the engine.
        handle: Where the lines go, opened for writing text by its owner, who also closes it.
        pid: First process of the engine, for the memory of its tree; None where it is not ours.
        read_gpus: Gives one dictionary per device; None where there is none to ask.
        period_s: Between two lines, seconds.

    Raises:
        SpecError: The address is not one.
    """

    def __init__(
        self,
        base_url: str,
        handle: TextIO,
        *,
        pid: int | None = None,
        read_gpus: GpuReader | None = None,
        period_s: float = 1.0,
    ) -> None:
        self._getter = Getter(base_url, timeout_s=max(period_s, 1.0))
        self._handle, self._pid, self._read_gpus, self._period_s = handle, pid, read_gpus, period_s
        self._stop = threading.Event()
        self._samples, self._missed = 0, 0
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._work, name="k3-sampler", daemon=True)

    def start(self) -> Sampler:
        """Begins; the first line is written at once."""
        self._thread.start()
        return self

    def stop(self) -> SamplingResult:
        """
        Ends the sampling and waits for the line in work; a second call gives the same answer.

        Returns:
            How it went.
        """
        self._stop.set()
        if self._thread.ident is None:  # it was never started
            self._getter.close()
        else:
            self._thread.join(timeout=10.0)
        if self._thread.is_alive():
            return SamplingResult(self._samples, self._missed, "the last reading did not end within 10 s")
        return SamplingResult(self._samples, self._missed, self._failure)

    def __enter__(self) -> Sampler:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _work(self) -> None:
        started, turn = monotonic(), 0
        try:
            while not self._stop.is_set():
                self._handle.write(orjson.dumps(self._read(monotonic() - started)).decode() + "\n")
                self._handle.flush()
                self._samples += 1
                due = int((monotonic() - started) / self._period_s) + 1
                self._missed, turn = self._missed + due - turn - 1, due
                self._stop.wait(max(0.0, started + turn * self._period_s - monotonic()))
        except Exception as problem:  # a full disk or a broken reader must not take the session with it
            self._failure = f"{type(problem).__name__}: {problem}"
        finally:
            self._getter.close()

    def _read(self, elapsed_s: float) -> dict[str, Any]:
        answer = self._getter.get("/metrics")
        line: dict[str, Any] = {
            "t": datetime.now().astimezone().isoformat(timespec="milliseconds"),
            "elapsed_s": round(elapsed_s, 3),
            "series": None,
            "rss_bytes": read_tree_rss_bytes(self._pid) if self._pid is not None else None,
            "gpus": self._read_gpus() if self._read_gpus is not None else None,
        }
        if answer.error is not None:
            return line | {"reason": f"/metrics: {answer.error}"}
        series = summarize_watched(parse_metrics(answer.body))
        absent = [name for name, value in series.items() if value is None]
        return line | {"series": series} | ({"reason": "not in /metrics: " + ", ".join(absent)} if absent else {})


def read_tree_rss_bytes(pid: int) -> int | None:
    """
    Resident memory of a process and its descendants.

    Args:
        pid: The first process.

    Returns:
        Bytes; pages that several of them share are counted for each. None if it is gone.
    """
    import psutil

    try:
        first = psutil.Process(pid)
        tree = [first, *first.children(recursive=True)]
    except psutil.Error:
        return None
    found = [size for size in map(_rss_bytes, tree) if size is not None]
    return sum(found) if found else None


def _rss_bytes(process: Any) -> int | None:
    import psutil

    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it ended between the listing and the question
        return None
