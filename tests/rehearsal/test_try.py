"""`k3 try URL`: the request path without a campaign, marked exploratory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson
import pytest

if TYPE_CHECKING:
    from conftest import House


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A rehearsal engine that somebody else started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "k3lib.rehearsal", "serve", "moonshotai/Kimi-K3", "--tensor-parallel-size", "8"]
    parsers = ["--enable-auto-tool-choice", "--tool-call-parser", "kimi_k3", "--reasoning-parser", "kimi_k3"]
    engine = subprocess.Popen(
        [*words, *parsers, "--max-model-len", "16384", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "VLLM_ENGINE_READY_TIMEOUT_S": "3600"},
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1).close()
            break
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    yield url
    engine.terminate()
    engine.wait(10)


def test_an_endpoint_gets_an_exploratory_answer(house: House, endpoint: str) -> None:
    """Without a campaign: request and four probes, kept in a file, marked 1/1 and as a rehearsal."""
    ran = house.k3("try", endpoint)
    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert "EXPLORATORY 1/1" in ran.stdout
    assert "REHEARSAL" in ran.stdout
    as_json = orjson.loads(house.k3("try", endpoint, "--json").stdout)
    assert "exploratory 1/1" == as_json["label"]
    assert as_json["request"]["ok"]
    assert 4 == len(as_json["probes"])
    assert 2 == len(list((house.outputs / "exploratory").iterdir()))


def test_nothing_listens(house: House) -> None:
    """An address where nothing answers is refused in four lines."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    ran = house.k3("try", f"http://127.0.0.1:{free}")
    assert 2 == ran.returncode
    assert 4 == len(ran.stderr.strip().splitlines())
