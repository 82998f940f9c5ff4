"""The rehearsal engine as a real process on a free loopback port."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BASE = ("--tensor-parallel-size", "8", "--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.95")


@dataclass
class Running:
    """One process, its port and its log."""

    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    @property
    def log(self) -> str:
        """All it wrote so far."""
        return self.log_path.read_text("utf-8")

    def ask(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and body; JSON where it is JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"content-type": "application/json", **(headers or {})}
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _decoded(error.read())

    def chat(self, text: str, **options: Any) -> tuple[int, Any]:
        """One user message."""
        return self.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **options})

    def wait_ready(self, limit_s: float = 10.0) -> Running:
        """Until /health is 200; fails if the process ended or the limit is over."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log
            try:
                if self.ask("/health")[0] == 200:
                    return self
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"not ready after {limit_s} s:\n{self.log}")

    def wait_end(self, limit_s: float = 10.0) -> int:
        """The exit code."""
        return self.process.wait(limit_s)

    def counter(self, name: str) -> float:
        """One sample of /metrics by its name, over all labels."""
        text = self.ask("/metrics")[1].decode()
        found = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        assert found, f"{name} is not in /metrics"
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


Start = Callable[..., Running]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _begin(
    folder: Path, flags: tuple[str, ...], base: tuple[str, ...], port: int, environment: dict[str, str]
) -> Running:
    words = ["serve", "moonshotai/Kimi-K3", "--host", "127.0.0.1", "--port", str(port), *base, *flags]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("K3_", "VLLM_"))}
    log_path = folder / f"engine-{port}-{time.monotonic_ns()}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "k3lib.rehearsal", *words],
            stdout=log,
            stderr=log,
            env={**kept, "VLLM_ENGINE_READY_TIMEOUT_S": "3600", **environment},  # reading the weights takes 1,200 s
            start_new_session=True,
        )
    return Running(process, port, log_path)


def _end(started: list[Running]) -> None:
    for running in started:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGKILL)
            running.process.wait(10)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts engines; every one is gone when the test is."""
    started: list[Running] = []

    def begin(*flags: str, base: tuple[str, ...] = BASE, port: int | None = None, **environment: str) -> Running:
        started.append(_begin(tmp_path, flags, base, port or _free_port(), environment))
        return started[-1]

    yield begin
    _end(started)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Gives a ready engine with these flags, one per module, to tests that leave it as they found it."""
    started: dict[tuple[str, ...], Running] = {}

    def find(*flags: str) -> Running:
        if flags not in started:
            folder = tmp_path_factory.mktemp("shared")
            started[flags] = _begin(folder, flags, BASE, _free_port(), {}).wait_ready()
        return started[flags]

    yield find
    _end(list(started.values()))
