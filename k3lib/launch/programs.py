"""The engine's program on this machine, and the release it says it is."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from k3lib.errors import LaunchError
from k3lib.knowledge.versions import parse_release
from k3lib.spec.launch import INHERITED
from k3lib.spec.vocabulary import EngineKind

_VERSION_TIMEOUT_S = 120.0

_versions: dict[tuple[object, ...], str] = {}


def find_program(kind: EngineKind, executable: str | None = None) -> list[str]:
    """
    The words that start the program of a kind.

    Args:
        kind: `rehearsal` or `local`.
        executable: A program or a virtual environment that holds `bin/vllm`; None is the kind's own,
            for `local` the `vllm` on PATH.

    Raises:
        LaunchError: There is none.
    """
    if kind is EngineKind.REHEARSAL and executable is None:
        return [sys.executable, "-m", "k3lib.rehearsal"]
    given = Path(executable).expanduser() if executable else Path("vllm")
    if given.is_dir():
        given = given / "bin" / "vllm"
    found = shutil.which(str(given))
    if found is None:
        raise program_missing(str(given))
    return [os.path.abspath(found)]


def program_missing(name: str) -> LaunchError:
    """The error for an engine that isn't installed where it should be; the caller raises it."""
    path = Path(name)
    if os.sep not in name:
        evidence = f"no {name} on PATH: {os.environ.get('PATH', '')}"
    elif path.exists():
        evidence = f"{name} exists and is not executable"
    else:
        evidence = f"{name} does not exist"
    return LaunchError(
        f"the engine's program {name} was not found; no engine was started",
        expected="vLLM's program `vllm`, on PATH or named by engine.program",
        evidence=evidence,
        next="set engine.program to vLLM's program or its virtual environment, or let "
        "`python -m k3lib.launch.cpu_engine install` make one that needs no GPU",
    )


def read_version(program: Sequence[str]) -> str | None:
    """
    The release a program says it is, by `--version`; remembered until the program's file changes.

    vLLM imports torch to answer this, which took 8 s on 2 cores.

    Args:
        program: The words before `--version`.

    Returns:
        `0.32.0+cpu`, or None if it did not say, failed or took longer than two minutes.
    """
    key = (*program, _modified(program[0]))
    if key not in _versions:
        lines = [line.strip() for line in _run_version(program).splitlines()]
        said = next((line for line in reversed(lines) if parse_release(line).known), None)
        if said is None:
            return None
        _versions[key] = said
    return _versions[key]


def _modified(program: str) -> int | None:
    try:
        return os.stat(program).st_mtime_ns
    except OSError:
        return None


def _run_version(program: Sequence[str]) -> str:
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    try:
        process = subprocess.Popen(
            [*program, "--version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ""
    try:
        return process.communicate(timeout=_VERSION_TIMEOUT_S)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        return ""
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
