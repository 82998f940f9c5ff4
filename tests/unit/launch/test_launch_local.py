"""An engine of this machine: how it is started, watched and ended, with real processes."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from k3lib.errors import LaunchError
from k3lib.launch.engines import start_engine
from k3lib.launch.local import LocalEngine
from k3lib.launch.preflight import check_local_plan
from k3lib.spec.vocabulary import Ending

if TYPE_CHECKING:
    from tests.unit.launch.conftest import Fake

STUBBORN = {"FAKE_WORKER": "1"}


def test_ready_then_stopped(fake: Fake) -> None:
    """A healthy engine is ready, and its orderly end is a stop that we asked for."""
    with start_engine(fake.plan(), fake.log_fd) as engine:
        ready = engine.wait_ready()
        assert ready.ready
        assert ready.ending is None
        assert engine.alive()
    result = engine.stop()
    assert Ending.STOPPED == result.ending
    assert result.exit is not None
    assert (0, None, True) == (result.exit.code, result.exit.signal, result.exit.asked)
    assert result.ready_s is not None
    assert result.lived_s is not None
    assert 0 < result.ready_s <= result.lived_s < 10
    assert [] == result.killed == result.leftovers
    assert fake.log.read_text().endswith("bye\n")


def test_stop_is_idempotent(fake: Fake) -> None:
    """A second stop changes nothing."""
    engine = start_engine(fake.plan(), fake.log_fd)
    assert engine.stop() == engine.stop()


def test_port_is_free_after_the_stop(fake: Fake) -> None:
    """After a stop the same plan can be started again."""
    plan = fake.plan()
    with start_engine(plan, fake.log_fd) as engine:
        assert engine.wait_ready().ready
    check_local_plan(plan)


def test_orphaned_worker_is_gone_after_the_stop(fake: Fake) -> None:
    """A worker that left for a session of its own and ignores SIGTERM does not outlive the stop, and is named."""
    with start_engine(fake.plan(env=STUBBORN, stop_grace_s=0.5), fake.log_fd) as engine:
        assert engine.wait_ready().ready
        assert ["engine", "worker"] == fake.alive()
    assert [] == fake.alive()
    result = engine.stop()
    assert [f"pid {fake.pids()['worker']}"] == [line.split(":")[0] for line in result.killed]
    assert [] == result.leftovers


def test_death_of_the_first_process_takes_the_workers_along(fake: Fake) -> None:
    """An API server that is killed leaves no worker behind, though nobody called stop."""
    with start_engine(fake.plan(env=STUBBORN, stop_grace_s=0.5), fake.log_fd) as engine:
        assert engine.wait_ready().ready
        os.kill(fake.pids()["engine"], signal.SIGKILL)
        for _ in range(400):
            if not fake.alive():
                break
            time.sleep(0.02)
        assert [] == fake.alive()
        exit_ = engine.poll()
        assert exit_ is not None
        assert (None, "SIGKILL", False) == (exit_.code, exit_.signal, exit_.asked)
    assert Ending.DIED == engine.stop().ending


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_nobody_asked_for_is_a_death(fake: Fake, code: int) -> None:
    """Exit code 0 included: vLLM's API server leaves with 0 after its engine died."""
    env = {"FAKE_EXIT": str(code), "FAKE_HEALTH": "none"}
    with start_engine(fake.plan(env=env), fake.log_fd) as engine:
        result = engine.wait_ready()
    assert Ending.DIED == result.ending == engine.stop().ending
    assert result.exit is not None
    assert (code, False) == (result.exit.code, result.exit.asked)
    assert result.ready_s is None
    assert result.lived_s is not None
    assert 0.2 <= result.lived_s < 5


@pytest.mark.parametrize("health", ["none", "hang", "drip"])
def test_time_out_names_its_limit(fake: Fake, health: str) -> None:
    """Whether /health is absent, hangs or drips bytes, the wait ends at its limit and says which one."""
    with start_engine(fake.plan(env={"FAKE_HEALTH": health}, ready_timeout_s=1.5), fake.log_fd) as engine:
        start = time.monotonic()
        result = engine.wait_ready()
        assert 1 < time.monotonic() - start < 2.5
        assert "engine.ready_timeout_s = 1.5 s" == result.limit
        assert result.ending is None
    assert Ending.TIMED_OUT == engine.stop().ending


def test_ticks_tell_the_time(fake: Fake) -> None:
    """While we wait, the caller hears the seconds since the start, ascending."""
    ticks: list[float] = []
    with start_engine(fake.plan(env={"FAKE_HEALTH": "none"}, ready_timeout_s=0.6), fake.log_fd) as engine:
        engine.wait_ready(ticks.append)
    assert sorted(ticks) == ticks
    assert len(ticks) >= 2
    assert ticks[-1] <= 0.7


def test_another_program_on_the_port_is_not_our_engine(fake: Fake) -> None:
    """A 200 from a program that took the port after the check does not make the engine ready."""
    plan = fake.plan(env={"FAKE_HEALTH": "none"}, ready_timeout_s=1.0)
    with socket.create_server(("127.0.0.1", plan.port)) as other, LocalEngine.start(plan, fake.log_fd) as engine:
        thread = threading.Thread(target=_answer_ok, args=(other,), daemon=True)
        thread.start()
        assert engine.wait_ready().ready_s is None


def _answer_ok(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")


def test_environment_is_clean(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine sees declared variables and the inherited minimum, not the rest of ours."""
    monkeypatch.setenv("K3_TEST_SECRET", "s3cret")
    monkeypatch.setenv("HF_HOME", "/models")
    plan = fake.plan(env={"DECLARED": "yes"})
    with start_engine(plan, fake.log_fd) as engine:
        seen = Path(f"/proc/{engine.pid}/environ").read_text()
    variables = dict(entry.split("=", 1) for entry in seen.split("\0") if entry)
    assert "yes" == variables["DECLARED"]
    assert "/models" == variables["HF_HOME"]
    assert plan.token == variables["K3_TRIAL"]
    assert "K3_TEST_SECRET" not in variables
    assert "HF_HOME" not in engine.stop().env


def test_temporary_directory_goes_with_the_trial(fake: Fake) -> None:
    """The engine has a TMPDIR of its own, which is there while it runs and gone after."""
    with start_engine(fake.plan(), fake.log_fd) as engine:
        assert engine.wait_ready().ready
        place = Path(fake.log.read_text().split()[1])
        (place / "socket").touch()
    assert not place.exists()


def test_log_is_appended_as_it_comes(fake: Fake) -> None:
    """What stood in the log stays, and the engine's line is on disk while the engine runs."""
    fake.log.write_text("before\n")
    with start_engine(fake.plan(), fake.log_fd) as engine:
        assert engine.wait_ready().ready
        assert ["before", "hello"] == [line.split()[0] for line in fake.log.read_text().splitlines()]


def test_program_that_cannot_be_executed(fake: Fake) -> None:
    """A file that is executable and no program is our error, in four lines, and nothing is left."""
    program = fake.folder / "vllm"
    program.write_bytes(b"\x00\x01no program")
    program.chmod(0o755)
    with pytest.raises(LaunchError, match="could not be executed") as caught:
        start_engine(fake.plan(argv=(str(program), "serve")), fake.log_fd)
    assert f"Exec format error: {program}" == caught.value.evidence


def test_killed_keeper_leaves_nothing(fake: Fake) -> None:
    """Even if the process that keeps the engine is killed, the stop finds a worker without any mark but its log."""
    env = {**STUBBORN, "FAKE_RENAME": "1"}
    with start_engine(fake.plan(env=env), fake.log_fd) as engine:
        assert engine.wait_ready().ready
        keeper = int(Path(f"/proc/{engine.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(keeper, signal.SIGKILL)
        for _ in range(100):
            if not engine.alive():
                break
            time.sleep(0.02)
        assert ["worker"] == fake.alive()
    assert [] == fake.alive()
    result = engine.stop()
    assert Ending.DIED == result.ending
    assert [f"pid {fake.pids()['worker']}"] == [line.split(":")[0] for line in result.leftovers]


def test_exception_in_the_block_stops_the_engine(fake: Fake) -> None:
    """An error of ours while the engine runs ends the engine too."""
    engine = start_engine(fake.plan(env=STUBBORN, stop_grace_s=0.5), fake.log_fd)
    assert engine.wait_ready().ready
    with pytest.raises(ZeroDivisionError), engine:
        raise ZeroDivisionError
    assert [] == fake.alive()
    assert Ending.STOPPED == engine.stop().ending


def test_base_url_is_reachable_from_here(fake: Fake) -> None:
    """An engine on every address is reached by loopback."""
    port = fake.free_port()
    plan = fake.plan(host="0.0.0.0", remote_host_allowed=True, port=port)
    assert f"http://127.0.0.1:{port}" == LocalEngine(plan, fake.log_fd).base_url
