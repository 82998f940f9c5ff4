"""
The engine's log, line for line as vLLM 0.33.0 writes it.

    (Worker_TP0 pid=9000200) INFO 11-30 18:00:12 [model_runner.py:429] Model loading took 189.8 GiB memory and 1247.2
    seconds

vLLM's own lines and uvicorn's access lines go to stdout, tracebacks, progress bars and uvicorn's other lines to stderr.
The process numbers of engine and workers are made up, stable, and above Linux's largest pid, so that nobody who reads
one out of a log can signal a stranger with it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable

from k3lib.rehearsal.clock import ModelClock

_ENGINE_PID = 9_000_100
_WORKER_PID = 9_000_200


class Journal:
    """
    Writes the log.

    Args:
        clock: Gives the stamps.
        worker_names: Name of each rank's process, `Worker_TP0`.
    """

    def __init__(self, clock: ModelClock, worker_names: list[str]) -> None:
        self._clock = clock
        self.worker_names = worker_names
        self.engine_pid = _ENGINE_PID

    def api(self, where: str, text: str, level: str = "INFO") -> None:
        """A line of the API server."""
        self._write("APIServer", os.getpid(), level, where, text)

    def engine(self, where: str, text: str, level: str = "INFO") -> None:
        """A line of the engine's core."""
        self._write("EngineCore", self.engine_pid, level, where, text)

    def worker(self, rank: int, where: str, text: str, level: str = "INFO") -> None:
        """A line of one rank."""
        self._write(self.worker_names[rank], _WORKER_PID + rank, level, where, text)

    def workers(self, where: str, texts: Iterable[str]) -> None:
        """One line of every rank, in order."""
        for rank, text in enumerate(texts):
            self.worker(rank, where, text)

    def uvicorn(self, text: str, *, access: bool = False) -> None:
        """A line of the HTTP server, which has no prefix and no stamp."""
        print(f"INFO:     {text}", file=sys.stdout if access else sys.stderr, flush=True)

    def bare(self, text: str) -> None:
        """A traceback or a progress bar: straight to stderr."""
        print(text, file=sys.stderr, flush=True)

    def _write(self, process: str, pid: int, level: str, where: str, text: str) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S", time.localtime(self._clock.now()))
        prefix = f"({process} pid={pid}) {level} {stamp} [{where}] "
        sys.stdout.write("".join(f"{prefix}{line}\n" for line in text.split("\n")))
        sys.stdout.flush()
