"""Our own end: a program that owns an engine is killed or interrupted, and nothing of the engine may stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from k3lib.spec.launch import LaunchPlan
from k3lib.spec.results import LaunchResult
from k3lib.spec.vocabulary import Ending

if TYPE_CHECKING:
    from tests.unit.launch.conftest import Fake

OWNER = Path(__file__).with_name("owner.py")
KEEPER = Path(__file__).parents[3] / "k3lib" / "launch" / "keeper.py"
WITHIN_S = 10.0

Wait = Callable[[Callable[[], bool], float], float]


def start_owner(fake: Fake, plan: LaunchPlan, *words: str) -> subprocess.Popen[str]:
    """A program that owns an engine and has said that it is ready."""
    place = fake.folder / "plan.json"
    place.write_text(plan.model_dump_json())
    owner = subprocess.Popen(
        [sys.executable, str(OWNER), str(place), str(fake.log), str(fake.folder / "done.json"), *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert "ready\n" == owner.stdout.readline()
    return owner


def read_done(fake: Fake) -> LaunchResult:
    """What the owner wrote at its end."""
    return LaunchResult.model_validate_json((fake.folder / "done.json").read_text())


def keeper_of(engine: int) -> int:
    """The engine's parent."""
    return int(Path(f"/proc/{engine}/stat").read_text().rpartition(")")[2].split()[1])


def test_kill_9_of_the_owner(fake: Fake, wait_until: Wait) -> None:
    """Within 10 s after a kill -9 nothing of the engine runs, a stubborn worker and a long grace notwithstanding."""
    owner = start_owner(fake, fake.plan(env={"FAKE_WORKER": "1"}, stop_grace_s=60.0))
    keeper = keeper_of(fake.pids()["engine"])
    assert ["engine", "worker"] == fake.alive()
    owner.kill()
    owner.communicate()
    wait_until(lambda: not fake.alive() and not fake.runs(keeper), WITHIN_S)
    assert not Path(fake.log.read_text().split()[1]).exists()


def test_kill_9_with_a_forked_helper(fake: Fake, wait_until: Wait) -> None:
    """A fork of the owner that still holds its pipe does not keep the engine alive."""
    owner = start_owner(fake, fake.plan(), "fork")
    keeper = keeper_of(fake.pids()["engine"])
    children = Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()
    (helper,) = {int(pid) for pid in children} - {keeper}
    owner.kill()
    owner.wait()
    try:
        wait_until(lambda: not fake.alive() and not fake.runs(keeper), WITHIN_S)
        assert fake.runs(helper)
    finally:
        os.kill(helper, signal.SIGKILL)


def test_ctrl_c_while_serving(fake: Fake) -> None:
    """Ctrl-C ends the engine, then reaches the owner; the ending says that it was an interruption."""
    owner = start_owner(fake, fake.plan(env={"FAKE_WORKER": "1"}, stop_grace_s=0.5))
    owner.send_signal(signal.SIGINT)
    owner.communicate(timeout=WITHIN_S)
    assert -signal.SIGINT == owner.returncode
    assert [] == fake.alive()
    assert Ending.INTERRUPTED == read_done(fake).ending


def test_ctrl_c_during_the_stop(fake: Fake) -> None:
    """A Ctrl-C, and another, that comes while the engine is being stopped waits until it is stopped."""
    owner = start_owner(fake, fake.plan(env={"FAKE_WORKER": "1"}, stop_grace_s=2.0), "stop")
    assert owner.stdout is not None
    assert "stopping\n" == owner.stdout.readline()
    start = time.monotonic()
    for _ in range(2):
        time.sleep(0.3)
        assert owner.poll() is None
        owner.send_signal(signal.SIGINT)
    owner.communicate(timeout=WITHIN_S)
    assert time.monotonic() - start > 1.5
    assert -signal.SIGINT == owner.returncode
    assert [] == fake.alive()
    assert [] != read_done(fake).killed


def test_signals_at_the_keeper_change_nothing(fake: Fake) -> None:
    """SIGINT, SIGTERM and SIGHUP at the keeper, as a closing terminal sends them, leave the engine alone."""
    owner = start_owner(fake, fake.plan())
    keeper = keeper_of(fake.pids()["engine"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(keeper, number)
    time.sleep(0.5)
    assert ["engine"] == fake.alive()
    owner.send_signal(signal.SIGINT)
    owner.communicate(timeout=WITHIN_S)


def test_usage() -> None:
    """Started by hand without its words, the keeper says what they are."""
    run = subprocess.run([sys.executable, "-I", "-S", str(KEEPER)], capture_output=True, text=True, check=False)
    assert (1, "usage: keeper.py CONTROL STATUS LOG PARENT GRACE_S SCRATCH PROGRAM [WORD...]\n") == (
        run.returncode,
        run.stderr,
    )
