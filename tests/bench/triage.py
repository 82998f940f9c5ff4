"""
How fast `k3 triage` reads, against `grep -cE` with the same literals on the same file in the same run.

    .venv/bin/python tests/bench/triage.py [--mib 1024] [--rounds 3]

A second grep looks for ten words of failure only, as a person at a shell would: it has an easier task.

Two logs are written, each of a server that starts, serves, fails and floods 40,000 lines: in one the
failure stands near the beginning, in the other near the end. grep writes to a file: into /dev/null
it would stop at its first match. Every answer is checked against the line that was written.
Exit code 1 if a limit is passed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from k3lib.logs.needles import load_needles

_MOST_RATIO = 6.0
_MOST_PEAK_MIB = 150.0
_MOST_FIRST_S = 1.0
_FIRST_MIB = 10
_FLOOD_LINES = 40_000
_RANKS = 8
_PROGRAM = [sys.executable, "-m", "k3lib.cli"]

_RANK_NAMES = [f"(Worker_TP{rank} pid={80 + rank})" for rank in range(_RANKS)]

_WORDS = (
    "ERROR|Traceback|CUDA error|out of memory|NCCL WARN|Killed|Segmentation|Exception|RuntimeError|exited with code"
)
_START = [
    "(APIServer pid=1) INFO 07-15 09:58:01 [startup.py:30] vLLM server version 0.33.0, serving model m",
    "(EngineCore pid=70) INFO 07-15 09:58:20 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: m",
    *(f"{rank} INFO 07-15 09:58:40 [model_runner.py:399] Loading model from scratch..." for rank in _RANK_NAMES),
    *(f"{rank} INFO 07-15 09:59:40 [gpu_worker.py:773] Available KV cache memory: 19.02 GiB" for rank in _RANK_NAMES),
    "(EngineCore pid=70) INFO 07-15 10:00:00 [core.py:396] init engine (profile, create kv cache) took 20.1 s",
    "(APIServer pid=1) INFO:     Application startup complete.",
]
_FRAMES = [
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.12/site-packages/vllm/v1/executor/multiproc_executor.py", line 944, in worker_busy_loop',
    "    output = func(*args, **kwargs)",
    '  File "/usr/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 812, in execute_model',
    "    output = self.model_runner.execute_model(scheduler_output, intermediate_tensors)",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
]
_FIRST_ERROR = "WorkerProc hit an exception."


class Log(NamedTuple):
    """A written log: its file, and the lines from first to last among which the first error stands."""

    name: str
    path: Path
    first_error: tuple[int, int]


class Run(NamedTuple):
    """One run of a program: seconds by the wall and of the processor, peak of resident memory, what it printed."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    output: bytes


def write_log(path: Path, size_bytes: int, fail_at: float) -> tuple[int, int]:
    """Writes a log that fails after this fraction of it; returns the first and last line of the first error's block."""
    dice = random.Random(20_260_715)
    lines = written = 0
    block: tuple[int, int] | None = None
    with path.open("wb", buffering=1 << 20) as log:
        lines += _put(log, _START)
        while written < size_bytes:
            if block is None and written >= fail_at * size_bytes:
                block = lines + 1, lines + len(_FRAMES) + 1
                lines += _put(log, _flood(dice))
            page = list(_healthy(dice, 5000))
            lines += _put(log, page)
            written = log.tell()
    assert block is not None
    return block


def _put(log: BinaryIO, lines: list[str]) -> int:
    log.write(("\n".join(lines) + "\n").encode())
    return len(lines)


def _clock(dice: random.Random) -> str:
    return f"07-15 10:{dice.randrange(60):02}:{dice.randrange(60):02}"


def _healthy(dice: random.Random, lines: int) -> Iterator[str]:
    for i in range(lines):
        if i % 4 == 0:
            yield (
                f"(APIServer pid=1) INFO {_clock(dice)} [loggers.py:257] Engine 000: Avg prompt throughput: "
                f"{dice.random() * 9e3:.1f} tokens/s, Avg generation throughput: {dice.random() * 900:.1f} tokens/s, "
                f"Running: {dice.randrange(64)} reqs, Waiting: {dice.randrange(9)} reqs, "
                f"GPU KV cache usage: {dice.random() * 99:.1f}%, Prefix cache hit rate: {dice.random() * 99:.1f}%"
            )
        else:
            port = dice.randrange(1024, 65536)
            client = f"10.0.{i % 7}.{i % 250}:{port}"
            yield f'(APIServer pid=1) INFO:     {client} - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def _flood(dice: random.Random) -> list[str]:
    lines: list[str] = []
    while len(lines) < _FLOOD_LINES:
        rank = _RANK_NAMES[(len(lines) // (len(_FRAMES) + 1)) % _RANKS]
        head = f"{rank} ERROR 07-15 11:{len(lines) // 900:02}:00 [multiproc_executor.py:949] "
        lines += [head + text for text in (f"{_FIRST_ERROR} step={dice.randrange(10**6)}", *_FRAMES)]
    return lines[:_FLOOD_LINES]


def run(argv: list[str], output: Path) -> Run:
    """Runs a program with its output in a file."""
    with output.open("wb") as out:
        start = time.perf_counter()
        child = subprocess.Popen(argv, stdout=out)
        _, _, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - start
        child.returncode = 0
    scale = 1024 if sys.platform == "darwin" else 1
    return Run(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024 / scale, output.read_bytes())


def measure(log: Log, folder: Path, rounds: int) -> tuple[float, float]:
    """Runs both programs in turn, prints every round; returns the median ratio and the highest peak."""
    patterns = folder / "literals"
    known = load_needles()
    patterns.write_text("\n".join(map(_escape, sorted(known.marks | known.telling | known.routine))) + "\n", "utf-8")
    rows = []
    for i in range(rounds):
        grep = run(["grep", "-cE", "-f", str(patterns), str(log.path)], folder / "grep.out")
        triage = run([*_PROGRAM, "triage", str(log.path), "--json"], folder / "triage.out")
        check(log, triage.output)
        words = run(["grep", "-cE", _WORDS, str(log.path)], folder / "words.out")
        rows.append((triage.wall_s / grep.wall_s, triage.peak_mib))
        print(
            f"{log.name:<20} round {i + 1}: k3 triage {triage.wall_s:6.2f} s, peak {triage.peak_mib:4.0f} MiB; "
            f"grep -cE, same literals {grep.wall_s:6.2f} s, ratio {rows[-1][0]:5.2f}; "
            f"ten words {words.wall_s:6.2f} s, ratio {triage.wall_s / words.wall_s:5.2f}",
            flush=True,
        )
    return statistics.median(ratio for ratio, _ in rows), max(peak for _, peak in rows)


def _escape(text: str) -> str:
    return re.sub(r"([][().*+?{}|^$\\])", r"\\\1", text)


def check(log: Log, output: bytes) -> None:
    """The answer names a line of the block that was written first, and the phase in which it stands."""
    answer = json.loads(output)[0]
    first, last = log.first_error
    line = answer["first_error"]["line"]
    assert first <= line <= last, f"{log.name}: first error at line {line}, written at {first} to {last}"
    assert answer["phase"] == "serving", f"{log.name}: phase {answer['phase']}"


def main() -> int:
    """Measures, prints, and compares with the limits."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    options.add_argument("--mib", type=int, default=1024, help="size of each log")
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    passed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, fail_at in (("error near the start", 0.01), ("error near the end", 0.99)):
            path = folder / "engine.log"
            log = Log(title, path, write_log(path, chosen.mib << 20, fail_at))
            ratio, peak_mib = measure(log, folder, chosen.rounds)
            passed += [(f"{title}: ratio", ratio, _MOST_RATIO), (f"{title}: peak MiB", peak_mib, _MOST_PEAK_MIB)]
        small = folder / "first.log"
        write_log(small, _FIRST_MIB << 20, 0.5)
        # It is one process that never waits, so processor time is its time on a machine that is not shared.
        runs = [run([*_PROGRAM, "triage", str(small), "--json"], folder / "triage.out") for _ in range(chosen.rounds)]
        print(f"first {_FIRST_MIB} MB: {min(r.wall_s for r in runs):.2f} s by the wall, the best of {len(runs)}")
        first_s = statistics.median(r.cpu_s for r in runs)
        passed.append((f"first {_FIRST_MIB} MB: processor seconds, start-up included", first_s, _MOST_FIRST_S))
    for what, value, limit in passed:
        print(f"{'ok  ' if value <= limit else 'FAIL'} {what}: {value:.2f} (limit {limit:g})")
    return int(any(value > limit for _, value, limit in passed))


if __name__ == "__main__":
    sys.exit(main())
