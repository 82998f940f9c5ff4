"""
The engine's log, line for line as vLLM writes it.

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
from collections.abc import Mapping

from k3lib.rehearsal.clock import ModelClock

_ENGINE_PID = 9_000_100
_WORKER_PID = 9_000_200


class Journal:
    """
    Writes the log.

    Args:
        clock: Gives the stamps.
        worker_names: Name of the process of each rank of this node, `Worker_TP0`.
        engine_names: The same of its engine cores, by data-parallel rank; a node may have none.
        front_end: `python` or `rust`. In Python one process starts the engine and answers HTTP; beside the Rust front
            end it only starts it, and then its lines have no prefix.
    """

    def __init__(self, clock: ModelClock, front_end: str = "python") -> None:
        self._clock = clock
        self.worker_names: Mapping[int, str] = {}
        self.engine_names: Mapping[int, str] = {}
        self.engine_pid = _ENGINE_PID
        self.rust = front_end == "rust"

    def api(self, where: str, text: str, level: str = "INFO") -> None:
        """A line of the process of `vllm serve`."""
        self._write(None if self.rust else "APIServer", os.getpid(), level, where, text)

    def early(self, where: str, text: str, level: str = "INFO") -> None:
        """A line from before the process has a name."""
        self._write(None, os.getpid(), level, where, text)

    def front(self, where: str, text: str, level: str = "INFO") -> None:
        """A line of what answers HTTP."""
        self._write("RustFrontend" if self.rust else "APIServer", os.getpid(), level, where, text)

    def engine(self, where: str, text: str, level: str = "INFO") -> None:
        """A line of every engine core of this node."""
        for rank, name in self.engine_names.items():
            self._write(name, self.engine_pid + rank, level, where, text)

    def worker(self, rank: int, where: str, text: str, level: str = "INFO") -> None:
        """A line of one rank; nothing if it lives on another node."""
        if rank in self.worker_names:
            self._write(self.worker_names[rank], _WORKER_PID + rank, level, where, text)

    def bare(self, text: str, *, output: bool = False) -> None:
        """A traceback, a progress bar or a line of uvicorn: as it is, to stderr, or to stdout if `output`."""
        print(text, file=sys.stdout if output else sys.stderr, flush=True)

    def _write(self, process: str | None, pid: int, level: str, where: str, text: str) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S", time.localtime(self._clock.now()))
        prefix = f"({process} pid={pid}) " if process else ""
        prefix += f"{level} {stamp} [{where}] "
        sys.stdout.write("".join(f"{prefix}{line}\n" for line in text.split("\n")))
        sys.stdout.flush()
