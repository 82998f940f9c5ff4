"""What the rules of the scene look at: snapshots of the same moment, the command, the first error, the changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from k3lib.knowledge.versions import parse_release
from k3lib.spec.change_note import ChangeNote
from k3lib.spec.model import Fact
from k3lib.spec.snapshot import Change, Container, Snapshot
from k3lib.spec.vocabulary import EngineKind

CONTAINER = "container"


class LoggedError(Fact):
    """
    The first error of a log, as triage read it.

    Args:
        file: Path inside the session's folder.
        line: Physical line, by newline.
        time: As the line says, or None.
        text: The line.
        block: First and last line of its block, or None.
        phase: Phase that the log reached, or None.
        last_milestone: The furthest milestone, or None.
        because: Why it is the first, one line, or None.
    """

    file: str
    line: int
    time: str | None = None
    text: str
    block: tuple[int, int] | None = None
    phase: str | None = None
    last_milestone: str | None = None
    because: str | None = None


class SceneFacts(Fact):
    """
    The scene of one evening, frozen.

    Args:
        views: Snapshots by view; `""` is the main host, `container` the inside of its container, then `node-2`, ….
        container: Name of the engine's container, or empty.
        command: The engine's command as it runs, or as the base would start it; None if neither is known.
        command_from: Who tells it: `the campaign's base`, `container k3`, `process 4121`.
        environment: Declared or configured variables, apart from the command.
        log: File of the log that was given, or None.
        first_error: The first error in it, or None.
        log_reason: Why there is no first error, or None.
        nothing_failed: The reason given for having no error to keep, or empty.
        failed_evidence: Files that could not be read, with the reason.
        notes: The campaign's change journal.
        return_point: Name of the last stable session, or None.
    """

    views: dict[str, Snapshot] = Field(default_factory=dict)
    container: str = ""
    command: list[str] | None = None
    command_from: str = ""
    environment: dict[str, str] = Field(default_factory=dict)
    log: str | None = None
    first_error: LoggedError | None = None
    log_reason: str | None = None
    nothing_failed: str = ""
    failed_evidence: dict[str, str] = Field(default_factory=dict)
    notes: list[ChangeNote] = Field(default_factory=list)
    return_point: str | None = None

    @property
    def hosts(self) -> dict[str, Snapshot]:
        """The views from outside a container."""
        return {view: snapshot for view, snapshot in self.views.items() if not view.startswith(CONTAINER)}

    @property
    def inside(self) -> dict[str, Snapshot]:
        """The views from inside one."""
        return {view: snapshot for view, snapshot in self.views.items() if view.startswith(CONTAINER)}

    def containers(self) -> Iterator[tuple[str, Container]]:
        """The engine's container as each host's runtime describes it."""
        for view, snapshot in self.hosts.items():
            for container in snapshot.containers or []:
                if self.container and container.name.lstrip("/") == self.container:
                    yield view, container

    def changes(self) -> list[Change]:
        """What the hosts' logs show of the days before, oldest first."""
        every = [change for snapshot in self.hosts.values() for change in snapshot.changes]
        return sorted(every, key=lambda change: change.at)

    def seconds_apart(self) -> float | None:
        """Between the first and the last snapshot; None if there is only one."""
        times = [datetime.fromisoformat(s.taken_at) for s in self.views.values()]
        return (max(times) - min(times)).total_seconds() if len(times) > 1 else None


def why_no_gpu(kind: EngineKind, release: str, settings: Mapping[str, Any]) -> str | None:
    """
    Why this engine can have no GPU and no GPU driver: `rehearsal` or `processor`; None if it should have one.

    A GPU that is not seen is no such reason: a dead driver looks the same.

    >>> why_no_gpu(EngineKind.LOCAL, "0.32.0+cpu", {})
    'processor'
    >>> why_no_gpu(EngineKind.DOCKER, "0.33.0", {})
    """
    if kind is EngineKind.REHEARSAL:
        return "rehearsal"
    local = parse_release(release).local or ""
    return "processor" if local.startswith("cpu") or "cpu_kv_cache_space_gib" in settings else None
