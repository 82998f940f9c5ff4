"""Sessions on the real engine: archived, honest, and nothing left behind however they end."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from k3lib.record.manifest import verify_manifest
from k3lib.record.paths import SessionPaths

if TYPE_CHECKING:
    from conftest import House

    from k3lib.launch.cpu_engine import EngineHome

PORT = 18473
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own for everything temporary, short enough for the engine's sockets, empty at the end."""
    folder = Path(tempfile.mkdtemp(prefix="k3t-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cpu_house(house: House, cpu_engine: EngineHome, tiny_hybrid: Path, temporary: Path) -> House:
    """A house whose cpu campaign uses the installed engine, on a port of its own."""

    def point(campaign: dict[str, dict[str, object]]) -> None:
        campaign["engine"].update(program=str(cpu_engine.venv), port=PORT)
        campaign["model"].update(name=str(tiny_hybrid))

    house.edit("cpu/campaign.yaml", point)
    return house


def what_lies_about(temporary: Path) -> set[str]:
    """Temporary files of the run, and shared memory of anybody."""
    return {p.name for p in temporary.iterdir()} | {p.name for p in SHARED_MEMORY.iterdir()}


def nothing_left(house: House, temporary: Path, before: set[str], within_s: float = 20) -> bool:
    """No process of this house, no port, no temporary folder, no shared memory."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        listening = [
            c for c in psutil.net_connections("inet") if c.laddr and c.laddr.port == PORT and c.status == "LISTEN"
        ]
        if not house.processes() and not listening and what_lies_about(temporary) <= before:
            return True
        time.sleep(0.2)
    return False


def test_a_single_request_on_a_real_engine(cpu_house: House, temporary: Path) -> None:
    """It starts, runs what was intended, answers the frozen request, is archived, and nothing is left."""
    before = what_lies_about(temporary)
    cpu_house.edit("cpu/40_single_request.yaml", lambda c: c.update(accept_gate="the start is another test's"))
    ran = cpu_house.k3("run", "params/cpu/40_single_request.yaml", timeout_s=400)
    assert 0 == ran.returncode, ran.stdout + ran.stderr
    [session] = cpu_house.sessions("cpu")
    record = cpu_house.record(session)
    assert [] == verify_manifest(SessionPaths(session))
    assert "engine" == record["session"]["provenance"]
    trial = record["trials"][0]
    frozen = [row for row in trial["requests"] if row["probe"] == "frozen"]
    assert [True] == [row["ok"] for row in frozen]
    agreed = {f["name"] for f in trial["effective"] if f["agrees"]}
    assert {"prefix_caching", "max_model_len", "release", "served_model"} <= agreed
    assert [] == [f["name"] for f in trial["effective"] if f["agrees"] is False]
    outcomes = {v["rule"]: v["outcome"] for v in record["verdicts"]}
    assert "PASS" == outcomes["request.answers"]
    assert "PASS" == outcomes["start.leftovers"]
    # Random weights answer in form only: a warning, never a fault of the engine.
    assert {outcomes[f"poc.{name}"] for name in ("api", "rendering")} <= {"PASS"}
    assert {outcomes[f"poc.{name}"] for name in ("tool_call", "coherence")} <= {"PASS", "WARN", "SKIP"}
    assert nothing_left(cpu_house, temporary, before), (cpu_house.processes(), what_lies_about(temporary) - before)


def test_a_killed_runner_leaves_nothing_of_a_real_engine(cpu_house: House, temporary: Path) -> None:
    """kill -9 of the runner while the engine starts: EngineCore and worker end too, the archive says killed."""
    before = what_lies_about(temporary)
    runner = cpu_house.start("run", "params/cpu/30_minimal_start.yaml")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and "EngineCore" not in _log(cpu_house):
        time.sleep(0.2)
    assert "EngineCore" in _log(cpu_house)
    os.kill(runner.pid, 9)
    runner.communicate()
    assert nothing_left(cpu_house, temporary, before), (cpu_house.processes(), what_lies_about(temporary) - before)
    shown = cpu_house.k3("show", cpu_house.sessions("cpu")[0].name)
    assert "killed" in shown.stdout


def _log(house: House) -> str:
    logs = list((house.outputs / "cpu").glob("*/trial-1/raw/engine.log"))
    return logs[0].read_text(errors="replace") if logs else ""
