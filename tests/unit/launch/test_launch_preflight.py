"""Bad plans are refused in four lines before anything is started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from k3lib.errors import LaunchError
from k3lib.launch.engines import check_plan, start_engine
from k3lib.launch.preflight import find_listener, looks_like_path
from k3lib.spec.vocabulary import EngineKind

if TYPE_CHECKING:
    from tests.unit.launch.conftest import Fake

LISTENER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[2])))
print(1, flush=True)
time.sleep(60)
"""


def refusal(fake: Fake, **fields: object) -> LaunchError:
    """The error of a plan that must not start, after proof that it started nothing."""
    with pytest.raises(LaunchError) as caught:
        start_engine(fake.plan(**fields), fake.log_fd)
    assert {} == fake.pids()
    assert 2 == caught.value.exit_code
    assert 4 == len(str(caught.value).splitlines())
    assert caught.value.what.endswith("no engine was started")
    return caught.value


def test_a_good_plan_passes(fake: Fake) -> None:
    """The plan that the other tests spoil is a good one."""
    check_plan(fake.plan(model_path="moonshotai/Kimi-K3"))


def test_port_in_use_names_its_owner(fake: Fake) -> None:
    """A port in use is refused with pid, age and command of its owner, and no word after a flag."""
    port = fake.free_port()
    words = [sys.executable, "-c", LISTENER, "--", str(port), "--api-key", "hunter2"]
    owner = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None
        owner.stdout.readline()
        error = refusal(fake, port=port)
        assert owner.pid == find_listener(port)
    finally:
        owner.kill()
        owner.communicate()
    assert f"port {port} is in use; no engine was started" == error.what
    assert error.evidence.startswith(f"pid {owner.pid}, started ")
    assert " s ago: " in error.evidence
    assert sys.executable in error.evidence
    assert "hunter2" not in str(error)


def test_a_bound_port_that_does_not_listen_yet_is_in_use(fake: Fake) -> None:
    """A port that another engine has bound on every address is no free port."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        error = refusal(fake, port=server.getsockname()[1])
    assert "a free port for engine.port" == error.expected


def test_address_of_another_machine(fake: Fake) -> None:
    """An address that this machine does not have is refused with the system's word for it."""
    error = refusal(fake, host="192.0.2.1", remote_host_allowed=True)
    assert "Cannot assign requested address (errno 99)" == error.evidence


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_a_reachable_host_must_be_allowed(fake: Fake, host: str) -> None:
    """An engine without a password does not listen where other machines reach it, unless told."""
    assert f"engine.host = {host}" == refusal(fake, host=host).evidence


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost"])
def test_loopback_needs_no_permission(fake: Fake, host: str) -> None:
    """Every loopback address is one."""
    check_plan(fake.plan(host=host))


def test_missing_program_by_path(fake: Fake) -> None:
    """An absent vLLM is refused with the name that was looked for and how to get one."""
    error = refusal(fake, argv=("/opt/none/bin/vllm", "serve", "m"))
    assert "/opt/none/bin/vllm does not exist" == error.evidence
    assert "vLLM's program `vllm`, on PATH or named by engine.program" == error.expected
    assert "k3lib.launch.cpu_engine install" in error.next


def test_missing_program_on_path(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program without a slash is looked up on PATH, and the error shows that PATH."""
    monkeypatch.setenv("PATH", "/usr/bin/nothing-here")
    assert "no vllm on PATH: /usr/bin/nothing-here" == refusal(fake, argv=("vllm", "serve", "m")).evidence


def test_program_that_is_not_executable(fake: Fake) -> None:
    """A file without its execute bit is named as such."""
    program = fake.folder / "vllm"
    program.write_text("#!/bin/sh\n")
    assert f"{program} exists and is not executable" == refusal(fake, argv=(str(program), "serve")).evidence


def test_missing_model_path(fake: Fake) -> None:
    """A model path that does not exist is refused with the last folder that does."""
    error = refusal(fake, model_path=str(fake.folder / "models" / "k3"))
    assert f"the model path {fake.folder}/models/k3 does not exist; no engine was started" == error.what
    assert f"{fake.folder}/models/k3 is not there; {fake.folder} is the last folder of it that exists" == error.evidence


def test_relative_model_path_is_seen_from_the_engine(fake: Fake) -> None:
    """A relative path holds from the engine's working directory, not from ours."""
    (fake.folder / "here").mkdir()
    check_plan(fake.plan(cwd=str(fake.folder), model_path="./here"))
    refusal(fake, cwd=str(fake.folder), model_path="./there")
    refusal(fake, cwd=str(fake.folder), model_path="here/there")


def test_missing_working_directory(fake: Fake) -> None:
    """A working directory that does not exist is refused."""
    assert f"{fake.folder}/none is no directory" == refusal(fake, cwd=str(fake.folder / "none")).evidence


@pytest.mark.parametrize("name", ["moonshotai/Kimi-K3", "gpt2", "RedHatAI/Kimi-K3-NVFP4"])
def test_repository_is_no_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`owner/name` is a repository unless a folder `owner` lies here."""
    monkeypatch.chdir(tmp_path)
    assert looks_like_path(name) is False
    (tmp_path / name.split("/")[0]).mkdir()
    assert looks_like_path(name) is ("/" in name)


@pytest.mark.parametrize("kind", [EngineKind.DOCKER, EngineKind.SLURM, EngineKind.ATTACH, EngineKind.LOGS])
def test_kinds_that_cannot_be_started(fake: Fake, kind: EngineKind) -> None:
    """A kind without code says so, and which kinds there are."""
    error = refusal(fake, kind=kind)
    assert f"engine.kind = {kind}" == error.evidence
    assert "engine.kind one of rehearsal, local" == error.expected


def test_nothing_is_open_after_a_refusal(fake: Fake) -> None:
    """A refused plan leaves no descriptor behind."""
    before = os.listdir("/proc/self/fd")
    refusal(fake, cwd="/none")
    assert before == os.listdir("/proc/self/fd")
