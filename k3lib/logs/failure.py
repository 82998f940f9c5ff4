"""
Records in, signs of failure out: every line that says that something went wrong, with its surroundings.

A sign knows its process, its launch, how far the start had got, the traceback it stands in, and which
signature it matches. What it means in the end is for k3lib/judge/failure.py. Memory stays bounded:
of signs that one process repeats, the first is kept and the rest are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import Field

from k3lib.knowledge.signatures import Origin, Signature, SignKind, match_signature
from k3lib.logs.blocks import LOUD, TRACEBACK, Block, BlockReader, Part, parse_exception
from k3lib.logs.launches import Event, split_launches
from k3lib.logs.lines import LogLine, Role
from k3lib.logs.prefixes import Level
from k3lib.logs.progress import Progress, ProgressReader
from k3lib.logs.timeline import Timeline, TimelineReader
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Phase

_MOST_SIGNS = 600
_MOST_TEXT = 2000
_KEPT_LAUNCHES = 64  # of the beginning and of the end
_TABLE_ROW = re.compile(r"\s\d+/\d+\s+[A-Z]\w+\s+\d")  # of `kubectl get pods`
_QUIET = (Level.DEBUG, Level.INFO, Level.WARNING)


class Moment(Fact):
    """
    When something was written.

    Args:
        time: As written, or None.
        seconds: Of the engine's clock, or of the wrapper's where there is no other; of the line before if none.
        outer_s: Of the wrapper's clock alone, or None.
        year_known, zone_known: What the first of these clocks says.
    """

    time: str | None = None
    seconds: float | None = None
    outer_s: float | None = None
    year_known: bool = False
    zone_known: bool = False


class Sign(Fact):
    """
    One line that says that something went wrong.

    Args:
        file, line, text: Where it stands, and its message, cut at 2,000 characters.
        signature: Id of the signature it matches, or None.
        exception: Class of the exception whose message it is, or None.
        kind, origin: As the signature says; a line without one is a cause if it is an exception, else a symptom.
        quiet: The engine called it a warning, an information or a debug line.
        launch: Which launch of its file, from 1.
        reached: Phase that the milestones before it had opened.
        ready: The API had said that it was ready, or answered.
        frames: Phase that the traceback's outermost known function tells, or None.
        block: Number of the traceback or message it stands in; 0 outside.
        first, last: Physical lines of that block.
        process, rank, role: Who wrote it.
        moment: When.
        values: Named groups of the signature's pattern.
    """

    file: str
    line: int
    text: str
    signature: str | None = None
    exception: str | None = None
    kind: SignKind = SignKind.SYMPTOM
    origin: Origin = Origin.ENGINE
    quiet: bool = False
    launch: int = 1
    reached: Phase = Phase.CONTAINER
    ready: bool = False
    frames: Phase | None = None
    block: int = 0
    first: int = 0
    last: int = 0
    process: str | None = None
    rank: str | None = None
    role: Role | None = None
    moment: Moment = Field(default_factory=lambda: Moment())
    values: dict[str, str | None] = Field(default_factory=dict)


class LaunchReading(Fact):
    """
    One launch of one log.

    Args:
        timeline: Its milestones.
        signs: In the order of the log.
        repeated: Signs that a process repeated and that were only counted.
        ended: When the engine wrote its last line, or None.
        progress: Waiting, answering, communicators: what tells a hang from an end.
    """

    timeline: Timeline
    signs: list[Sign] = Field(default_factory=list)
    repeated: int = 0
    ended: Moment | None = None
    progress: Progress = Field(default_factory=Progress)


class LogReading(Fact):
    """
    One file of an incident.

    Args:
        file: Its name.
        launches: At least one; of a longer restart loop the first 64 and the last 64.
        count: How many launches it holds.
        cut: The last line, if it has no end: what stands on it may lack words. None if it ended in order.
    """

    file: str
    launches: list[LaunchReading]
    count: int = 1
    cut: int | None = None


def is_table_row(text: str) -> bool:
    """
    Whether a line is a row of a table of pods.

    >>> is_table_row("kimi-0   0/1     ImagePullBackOff   0          14m")
    True
    """
    return bool(_TABLE_ROW.search(text))


def read_failures(file: str, lines: Iterable[LogLine]) -> LogReading:
    """
    The signs of failure in one log.

    Args:
        file: Its name, for the evidence.
        lines: Records in order; lines that hold none of the needles may be missing.

    Returns:
        A reading per launch.

    >>> from k3lib.logs.lines import read_lines
    >>> log = "ERROR 09-01 07:20:24 [core.py:5] RuntimeError: CUDA driver error: out of memory\\n"
    >>> read_failures("engine.log", read_lines(log)).launches[0].signs[0].signature
    'gpu-out-of-memory'
    """
    launches: list[LaunchReading] = []
    reader = _LaunchReader(file, 1)
    blocks = BlockReader()
    for event in split_launches(lines):
        if event.launch != reader.launch:
            launches.append(reader.reading())
            if len(launches) > 2 * _KEPT_LAUNCHES:
                del launches[_KEPT_LAUNCHES]
            reader = _LaunchReader(file, event.launch)
        reader.read(event, *blocks.read(event.line))
    launches.append(reader.reading())
    return LogReading(file=file, launches=launches, count=reader.launch)


class _LaunchReader:
    """Builds one launch's reading from its events."""

    def __init__(self, file: str, launch: int) -> None:
        self.launch = launch
        self._file = file
        self._timeline = TimelineReader(launch)
        self._progress = ProgressReader()
        self._signs: list[tuple[dict[str, Any], Block | None]] = []
        self._seen: set[tuple[Any, ...]] = set()
        self._repeated = 0
        self._moment = Moment()
        self._ended: Moment | None = None

    def read(self, event: Event, part: Part, block: Block | None) -> None:
        """Takes the next record."""
        line = event.line
        self._timeline.read(event)
        aborted = self._progress.read(event)
        self._watch_clock(line)
        if part in (Part.FRAME, Part.SOURCE, Part.CHAIN):
            return
        match = match_signature(line.said)
        if match is not None:
            if match.signature.kind is SignKind.HARMLESS or (match.signature.id == "request-aborted" and not aborted):
                return
            self._keep(line, block, match.signature, None, match.found.groupdict())
        elif name := parse_exception(line.text):
            self._keep(line, block, None, name, {})
        elif line.level in LOUD and part is Part.OPENING and TRACEBACK not in line.text:
            self._keep(line, block, None, None, {})

    def reading(self) -> LaunchReading:
        """All that was read of this launch."""
        signs = [Sign(**fields, **_surroundings(block, fields["line"])) for fields, block in self._signs]
        return LaunchReading(
            timeline=self._timeline.timeline(),
            signs=signs,
            repeated=self._repeated,
            ended=self._ended,
            progress=self._progress.progress(),
        )

    def _watch_clock(self, line: LogLine) -> None:
        stamp = line.time or line.outer
        if stamp is None or stamp.seconds is None:
            return
        self._moment = Moment(
            time=stamp.text,
            seconds=stamp.seconds,
            outer_s=line.outer.seconds if line.outer else None,
            year_known=stamp.year_known,
            zone_known=stamp.zone_known,
        )
        if line.process is not None or line.time is not None:
            self._ended = self._moment

    def _keep(
        self,
        line: LogLine,
        block: Block | None,
        signature: Signature | None,
        exception: str | None,
        values: dict[str, str | None],
    ) -> None:
        who = (line.process, line.pid, line.rank)
        # A row of a table gives a state; the event behind it, in the same words, gives the reason.
        what = (signature.id, is_table_row(line.text)) if signature else (exception, line.text[:80])
        key = (who, what, self._timeline.phase, block.number if block and signature is None else 0)
        if key in self._seen or len(self._signs) >= _MOST_SIGNS:
            self._repeated += 1
            return
        self._seen.add(key)
        self._signs.append(
            (
                {
                    "file": self._file,
                    "line": line.number,
                    "text": line.text.strip()[:_MOST_TEXT],
                    "signature": signature.id if signature else None,
                    "exception": exception or parse_exception(line.text),
                    "kind": signature.kind if signature else SignKind.CAUSE if exception else SignKind.SYMPTOM,
                    "origin": signature.origin if signature else Origin.ENGINE,
                    "quiet": line.level in _QUIET,
                    "launch": self.launch,
                    "reached": self._timeline.phase,
                    "ready": self._progress.ready,
                    "process": line.process,
                    "rank": line.rank,
                    "role": line.role,
                    "moment": self._moment,
                    "values": values,
                },
                block,
            )
        )


def _surroundings(block: Block | None, line: int) -> dict[str, Any]:
    if block is None:
        return {"first": line, "last": line}
    return {
        "block": block.number,
        "first": min(block.first, line),
        "last": max(block.last, line),
        "frames": block.phase,
    }
