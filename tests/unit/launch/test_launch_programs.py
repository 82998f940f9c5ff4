"""The engine's program is found, and says its release once."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from k3lib.errors import LaunchError
from k3lib.launch import programs
from k3lib.launch.programs import find_program, read_version
from k3lib.spec.vocabulary import EngineKind


def write_program(place: Path, body: str) -> Path:
    """An executable shell script."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{body}\n")
    place.chmod(0o755)
    return place


def test_rehearsal_is_a_program_of_ours() -> None:
    """The rehearsal is started like any engine, by our own interpreter."""
    assert [sys.executable, "-m", "k3lib.rehearsal"] == find_program(EngineKind.REHEARSAL)


def test_program_in_a_virtual_environment(tmp_path: Path) -> None:
    """A folder is a virtual environment, a file is the program."""
    program = write_program(tmp_path / "venv" / "bin" / "vllm", "")
    assert [str(program)] == find_program(EngineKind.LOCAL, str(tmp_path / "venv"))
    assert [str(program)] == find_program(EngineKind.LOCAL, str(program))


def test_program_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name it is the vllm on PATH."""
    program = write_program(tmp_path / "vllm", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [str(program)] == find_program(EngineKind.LOCAL)


def test_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An absent vLLM is our error and names what was looked for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError) as caught:
        find_program(EngineKind.LOCAL)
    assert f"no vllm on PATH: {tmp_path}" == caught.value.evidence
    with pytest.raises(LaunchError) as caught:
        find_program(EngineKind.LOCAL, str(tmp_path))
    assert f"{tmp_path}/bin/vllm does not exist" == caught.value.evidence


def test_version_among_noise(tmp_path: Path) -> None:
    """The last line that is a release is the answer, whatever else is printed."""
    body = "echo WARNING 11-30 noise; echo 0.32.0+cpu; echo; echo oh >&2"
    assert "0.32.0+cpu" == read_version([str(write_program(tmp_path / "vllm", body))])


@pytest.mark.parametrize("body", ["echo nothing", "exit 3", ""])
def test_no_version(tmp_path: Path, body: str) -> None:
    """A program that says no release gives None, not a guess."""
    assert read_version([str(write_program(tmp_path / "vllm", body))]) is None
    assert read_version([str(tmp_path / "absent")]) is None


def test_version_is_asked_once(tmp_path: Path) -> None:
    """The answer is remembered until the file changes."""
    program = write_program(tmp_path / "vllm", f"echo x >> {tmp_path}/calls; echo 0.33.0")
    assert "0.33.0" == read_version([str(program)]) == read_version([str(program)])
    assert "x\n" == (tmp_path / "calls").read_text()
    time.sleep(0.01)
    write_program(program, "echo 0.34.0")
    assert "0.34.0" == read_version([str(program)])


def test_version_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that never answers is killed with its children, and gives None."""
    monkeypatch.setattr(programs, "_VERSION_TIMEOUT_S", 0.3)
    program = write_program(tmp_path / "vllm", f"sleep 60 & echo $! > {tmp_path}/child; wait")
    start = time.monotonic()
    assert read_version([str(program)]) is None
    assert time.monotonic() - start < 5
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    assert not child.exists() or ") Z" in child.read_text()
