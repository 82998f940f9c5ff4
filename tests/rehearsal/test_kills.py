"""kill -9 of the runner, the kernel and the engine at any moment: the archive says what happened, nothing runs on."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from conftest import House

SESSION = "params/rehearsal/40_single_request.yaml"
DICE = random.Random(30)
MOMENTS_S = sorted(round(DICE.uniform(0.0, 9.0), 1) for _ in range(5))


@pytest.fixture
def running(house: House) -> House:
    """A house whose session takes about ten seconds: three trials, each some seconds of modelled time."""
    house.edit("rehearsal/40_single_request.yaml", lambda c: c.update(trials=3, accept_gate="the kill is the question"))
    house.edit("rehearsal/campaign.yaml", lambda c: c["engine"].update(rehearsal={"speed": 700.0}))
    return house


def wait_for(house: House, what: str, runner: subprocess.Popen[str], limit_s: float = 60) -> psutil.Process | None:
    """The first process of this house whose command line holds a word, or None if the run ends before."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and runner.poll() is None:
        for child in psutil.Process(runner.pid).children(recursive=True):
            try:
                words = " ".join(child.cmdline())
                if what in words and "keeper.py" not in words:
                    return child
            except psutil.Error:
                continue
        time.sleep(0.02)
    return None


def nothing_runs(house: House, within_s: float = 15) -> bool:
    """Everything that belongs to this house is gone in time."""
    deadline = time.monotonic() + within_s
    while house.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not house.processes()


def readable(session: Path) -> None:
    """Every JSON file of the session is whole."""
    for file in session.rglob("*.json"):
        json.loads(file.read_bytes())
    notebook = session / "notebook.ipynb"
    if notebook.exists():
        json.loads(notebook.read_bytes())


@pytest.mark.parametrize("moment_s", MOMENTS_S)
def test_the_runner_is_killed(running: House, moment_s: float) -> None:
    """The archive reads as killed, engine and kernel end by themselves, and the next week finishes what is left."""
    runner = running.start("run", SESSION)
    deadline = time.monotonic() + 60
    while not running.sessions() and runner.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(moment_s)
    runner.kill()
    runner.communicate()
    assert nothing_runs(running), running.processes()
    [session] = running.sessions()
    readable(session)
    shown = running.k3("show", session.name)
    assert 0 == shown.returncode, shown.stderr
    assert "killed" in shown.stdout or "(closed)" in shown.stdout
    again = running.k3("run", "params/rehearsal/30_minimal_start.yaml")
    assert 0 == again.returncode, again.stderr
    info = running.record(session)["session"]
    assert info["state"] in ("killed", "closed")
    assert "closed" == info["state"] or "is gone" in info["reason"]
    assert (session / "MANIFEST.sha256").exists()


@pytest.mark.parametrize("moment_s", MOMENTS_S)
def test_the_kernel_is_killed(running: House, moment_s: float) -> None:
    """The runner closes the archive, says that the kernel died, and ends with 1; the engine is gone."""
    runner = running.start("run", SESSION)
    kernel = wait_for(running, "k3lib.notebook.kernel", runner)
    assert kernel is not None
    time.sleep(moment_s)
    if not kernel.is_running():
        pytest.skip("the session had ended by then")
    kernel.send_signal(signal.SIGKILL)
    runner.communicate(timeout=90)
    assert nothing_runs(running), running.processes()
    [session] = running.sessions()
    readable(session)
    record = running.record(session)
    if record["session"]["state"] == "closed":
        pytest.skip("the session had ended by then")
    assert 1 == runner.returncode
    assert record["session"]["state"] in ("killed", "failed")  # failed: it died before it could take a cell
    assert "kernel" in record["session"]["reason"]
    assert (session / "notebook.html").exists()


@pytest.mark.parametrize("moment_s", [0.0, 0.4, 1.2])
def test_the_engine_is_killed(running: House, moment_s: float) -> None:
    """An engine that is killed is a result: the session closes, the trial failed and says by which signal."""
    runner = running.start("run", SESSION)
    engine = wait_for(running, "k3lib.rehearsal serve", runner)
    assert engine is not None
    time.sleep(moment_s)
    for process in [engine, *engine.children(recursive=True)]:
        os.kill(process.pid, signal.SIGKILL)
    runner.communicate(timeout=120)
    assert nothing_runs(running), running.processes()
    [session] = running.sessions()
    record = running.record(session)
    assert "closed" == record["session"]["state"]
    first = record["trials"][0]
    assert "died" == first["launch"]["ending"]
    assert first["failed_phase"] is not None
    assert 3 == len(record["trials"])
    assert 3 == runner.returncode


def test_the_keeper_is_killed(running: House) -> None:
    """Without its keeper the engine ends too; the session goes on to its end and says what happened."""
    runner = running.start("run", SESSION)
    engine = wait_for(running, "k3lib.rehearsal serve", runner)
    assert engine is not None
    os.kill(engine.ppid(), signal.SIGKILL)
    runner.communicate(timeout=120)
    assert nothing_runs(running), running.processes()
    record = running.record(running.sessions()[0])
    assert "died" == record["trials"][0]["launch"]["ending"]
    assert record["trials"][0]["failed_phase"] is not None


def test_ctrl_c_stops_everything(running: House) -> None:
    """Ctrl-C at the terminal: the engine is stopped, the archive says interrupted, exit code 125."""
    runner = running.start("run", SESSION)
    assert wait_for(running, "k3lib.rehearsal serve", runner) is not None
    runner.send_signal(signal.SIGINT)
    _, said = runner.communicate(timeout=90)
    assert 125 == runner.returncode, said
    assert nothing_runs(running), running.processes()
    [session] = running.sessions()
    record = running.record(session)
    assert "interrupted" == record["session"]["state"]
    assert record["trials"][0]["void"] is not None


def test_two_runs_exclude_each_other(running: House) -> None:
    """A second run on the same campaign is told who holds it, with exit code 2."""
    runner = running.start("run", SESSION)
    assert wait_for(running, "k3lib.rehearsal serve", runner) is not None
    second = running.k3("run", SESSION)
    assert 2 == second.returncode
    assert f"pid {runner.pid}" in second.stderr
    runner.send_signal(signal.SIGINT)
    runner.communicate(timeout=90)
    assert 1 == len(running.sessions())
