"""Where a command runs: here, in a container, on a node. Words in, output out: a fact is collected alike anywhere."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ShellAnswer:
    """
    What a command gave.

    Args:
        code: Exit code; None if it never ran or was ended at the limit.
        out, err: What it printed.
        reason: Why there is no code, or None.
    """

    code: int | None
    out: bytes
    err: str
    reason: str | None = None


class Shell(Protocol):
    """A place where commands can run."""

    @property
    def place(self) -> str:
        """Its name for people: `this machine`, `docker exec -i k3`."""

    @property
    def python(self) -> str:
        """The Python program to ask for there."""

    def run(self, argv: Sequence[str], stdin: bytes | None = None, limit_s: float = 60.0) -> ShellAnswer:
        """Run a command there, with that input, at most so long."""


@dataclass(frozen=True)
class LocalShell:
    """
    This machine.

    Args:
        python: Interpreter; the one we run in can import pynvml.
        env: Whole environment, or None for ours.
    """

    python: str
    env: Mapping[str, str] | None = None

    @property
    def place(self) -> str:
        """Its name for people."""
        return "this machine"

    def run(self, argv: Sequence[str], stdin: bytes | None = None, limit_s: float = 60.0) -> ShellAnswer:
        """Run a command here."""
        return _run(argv, stdin, limit_s, self.env)


@dataclass(frozen=True)
class CommandShell:
    """
    Any place that a command reaches: `docker exec -i k3`, `kubectl exec -i pod --`, `srun -N1 -w node2`, `ssh node2`.

    Args:
        prefix: The words before the command.
        python: Python program there.
        quote: The place joins the words into one line for a shell of its own, as ssh does; they are quoted for it.
    """

    prefix: tuple[str, ...]
    python: str = "python3"
    quote: bool = False

    @property
    def place(self) -> str:
        """Its name for people."""
        return " ".join(self.prefix)

    def run(self, argv: Sequence[str], stdin: bytes | None = None, limit_s: float = 60.0) -> ShellAnswer:
        """Run a command there."""
        words = [shlex.join(argv)] if self.quote else list(argv)
        return _run([*self.prefix, *words], stdin, limit_s, None)


def _run(argv: Sequence[str], stdin: bytes | None, limit_s: float, env: Mapping[str, str] | None) -> ShellAnswer:
    try:
        ran = subprocess.run(list(argv), input=stdin or b"", capture_output=True, timeout=limit_s, env=env, check=False)
    except subprocess.TimeoutExpired as late:
        return ShellAnswer(None, late.stdout or b"", "", f"no answer within {limit_s:g} s")
    except OSError as problem:
        return ShellAnswer(None, b"", "", f"{argv[0]}: {problem.strerror or problem}")
    return ShellAnswer(ran.returncode, ran.stdout, ran.stderr.decode("utf-8", "replace"))
