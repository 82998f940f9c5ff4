"""A fake engine, its plan, and what is left of it."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from k3lib.spec.launch import LaunchPlan
from k3lib.spec.vocabulary import EngineKind

FAKE = Path(__file__).with_name("fake_engine.py")


class Fake:
    """The fake engine of one test: its plan, its log and its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "engine.log"
        self.log_fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.pid_file = folder / "pids"

    def plan(self, *, env: dict[str, str] | None = None, **fields: object) -> LaunchPlan:
        """A plan for this fake; `env` adds to its FAKE_… variables."""
        port = self.free_port()
        words = (sys.executable, "-I", "-S", str(FAKE), "serve", "m", "--host", "127.0.0.1", "--port", str(port))
        given: dict[str, object] = {
            "kind": EngineKind.LOCAL,
            "argv": words,
            "env": {"FAKE_PIDS": str(self.pid_file)} | (env or {}),
            "port": port,
            "token": secrets.token_hex(8),
            "ready_timeout_s": 10.0,
            "stop_grace_s": 5.0,
        }
        return LaunchPlan.model_validate(given | fields)

    def pids(self) -> dict[str, int]:
        """Process ids by role, as the fake noted them."""
        words = [line.split() for line in self.pid_file.read_text().splitlines()] if self.pid_file.exists() else []
        return {role: int(pid) for role, pid in words}

    def alive(self) -> list[str]:
        """Roles whose process still runs."""
        return [role for role, pid in self.pids().items() if self.runs(pid)]

    @staticmethod
    def runs(pid: int) -> bool:
        """True if the process exists and is not a dead one that waits for its parent."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    @staticmethod
    def free_port() -> int:
        """A loopback port that was free a moment ago."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    made = Fake(tmp_path)
    yield made
    os.close(made.log_fd)
    for pid in made.pids().values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool], float], float]:
    """Wait for a condition; gives the seconds it took, fails at the limit."""

    def wait(condition: Callable[[], bool], limit_s: float) -> float:
        start = time.monotonic()
        while not condition():
            assert time.monotonic() - start < limit_s, f"not within {limit_s} s"
            time.sleep(0.02)
        return time.monotonic() - start

    return wait
