"""Run the collector in a place, through a shell, and take its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from k3lib.errors import InputError, K3Error
from k3lib.probe.shells import Shell
from k3lib.probe.snapshot import parse_collected
from k3lib.spec.snapshot import Collected

LIMIT_S = 180.0
"""Above the sum of the collector's own limits, which hold each source alone."""


class ProbeError(K3Error):
    """A place could not be looked at."""

    exit_code = 1


@dataclass(frozen=True)
class Wanted:
    """
    What to look at beyond the machine itself.

    Args:
        pythons: Interpreters whose versions to ask.
        pids: Engines that run.
        containers: Only these containers; all of them if none is named.
        files: Scripts whose times and hashes to keep.
        disks: Folders whose file systems to measure.
    """

    pythons: list[str] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    disks: list[str] = field(default_factory=list)

    def words(self) -> list[str]:
        """The collector's options."""
        options: dict[str, list[Any]] = {
            "--python": self.pythons,
            "--pid": self.pids,
            "--container": self.containers,
            "--file": self.files,
            "--disk": self.disks,
        }
        return [word for option, values in options.items() for value in values for word in (option, str(value))]


def read_collector() -> str:
    """The stand-alone collector, as text."""
    return files("k3lib.probe").joinpath("collector.py").read_text("utf-8")


def collect(shell: Shell, wanted: Wanted | None = None, limit_s: float = LIMIT_S) -> Collected:
    """
    Look at a place.

    The collector goes in by standard input, so that nothing has to be there but Python 3.8.

    Args:
        shell: The place.
        wanted: What to look at beyond the machine.
        limit_s: Seconds for the whole of it.

    Returns:
        The collection.

    Raises:
        ProbeError: The collector did not run there, or what came back is not its JSON.
    """
    words = (wanted or Wanted()).words()
    answer = shell.run([shell.python, "-", *words], read_collector().encode(), limit_s)
    if answer.code != 0:
        said = answer.reason or f"ended with {answer.code}: {answer.err.strip()[-400:] or 'no word'}"
        raise _not_looked_at(shell, said)
    try:
        return parse_collected(answer.out, shell.place)
    except InputError as problem:
        raise _not_looked_at(shell, f"it printed something else: {problem.evidence}") from problem


def _not_looked_at(shell: Shell, evidence: str) -> ProbeError:
    return ProbeError(
        f"{shell.place} could not be looked at",
        expected=f"{shell.python}, 3.8 or newer, runs the collector there",
        evidence=evidence,
        next="run the collector there by hand, k3 doctor --script prints it, and read its JSON with k3 doctor --from",
    )
