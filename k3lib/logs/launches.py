"""
Records to events: which milestones each line proves, and which launch of the log it belongs to.

A restart loop writes launch after launch into one file. A new one begins where a front end shows its
banner again, where an engine initialises again under another process id, at a pasted `vllm serve`
command, or at the first line after `… exited with code …`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from k3lib.knowledge.literals import Literals
from k3lib.knowledge.milestones import LaunchLines, LinePattern, load_engine_lines
from k3lib.logs.lines import LogLine
from k3lib.logs.prefixes import Level
from k3lib.spec.vocabulary import Milestone, Phase

_LONGEST = 32_768  # the engine's config line has about 6,000 characters


class Hit(NamedTuple):
    """One pattern met: its milestone and the phase it opens, both None for a mere fact."""

    milestone: Milestone | None
    opens: Phase | None
    pattern: LinePattern
    found: re.Match[str]


class Event(NamedTuple):
    """One record, the launch it belongs to (from 1), and what it proves."""

    launch: int
    line: LogLine
    hits: list[Hit]


@cache
def _table() -> tuple[list[tuple[Milestone | None, Phase | None, LinePattern]], Literals]:
    lines = load_engine_lines()
    rows = [
        *((known.name, known.opens, pattern) for known in lines.milestones for pattern in known.patterns),
        *((None, None, pattern) for pattern in lines.facts),
    ]
    return rows, Literals([pattern.needle for _, _, pattern in rows])


def match_line(text: str) -> list[Hit]:
    """
    What one message proves.

    Args:
        text: The message without prefixes; only its first 32,768 characters are looked at.

    Returns:
        A hit per milestone, then the facts; empty for most lines.

    >>> [hit.milestone.value for hit in match_line("Using max model len 131072")]
    ['max-model-len']
    """
    text = text[:_LONGEST]
    hits: list[Hit] = []
    rows, literals = _table()
    # Almost every line ends here, at a few microseconds: no needle, no regular expression.
    for row in literals.find(text):
        milestone, opens, pattern = rows[row]
        if milestone and any(hit.milestone is milestone for hit in hits):
            continue
        if found := pattern.search(text):
            hits.append(Hit(milestone, opens, pattern, found))
    return hits


def split_launches(lines: Iterable[LogLine]) -> Iterator[Event]:
    """
    The records of a log with the launch each belongs to.

    Args:
        lines: Records in order, from `read_lines`.

    Yields:
        One event per record, launches counted from 1.

    >>> from k3lib.logs.lines import read_lines
    >>> log = "vLLM server version 0.33.0\\nOSError: gone\\na-1 exited with code 1\\nvLLM server version 0.33.0\\n"
    >>> [event.launch for event in split_launches(read_lines(log))]
    [1, 1, 1, 2]
    """
    separators = load_engine_lines().launches
    launch = 1
    state = _LaunchState()
    for line in lines:
        hits = match_line(line.said)
        if state.begins_anew(line, hits, separators):
            launch += 1
            state = _LaunchState()
        state.take(line, hits, separators)
        yield Event(launch, line, hits)


class _LaunchState:
    """What has been seen of the launch that is being read."""

    def __init__(self) -> None:
        self._front_ends: dict[str | None, int | None] = {}
        self._engines: dict[str | None, int | None] = {}
        self._furthest = -1
        self._failed = False
        self._ended = False

    def begins_anew(self, line: LogLine, hits: list[Hit], separators: LaunchLines) -> bool:
        """Whether this line is the first of another launch."""
        if self._ended and (line.process is not None or line.level is not None or hits):
            return True
        if any(pattern.search(line.said) for pattern in separators.starts):
            return self._furthest >= 0 or self._failed
        names = {hit.milestone for hit in hits}
        if Milestone.API_SERVER_STARTED in names:
            return self._front_end_again(line)
        return Milestone.ENGINE_INITIALIZING in names and self._engine_again(line)

    def take(self, line: LogLine, hits: list[Hit], separators: LaunchLines) -> None:
        """Adds a line to the launch."""
        for hit in hits:
            if hit.milestone is None:
                continue
            self._furthest = max(self._furthest, hit.milestone.order)
            if hit.milestone is Milestone.API_SERVER_STARTED:
                self._front_ends[line.process] = line.pid
            if hit.milestone is Milestone.ENGINE_INITIALIZING:
                self._engines[line.process] = line.pid
        self._failed |= line.level in (Level.ERROR, Level.CRITICAL) or "Traceback (most" in line.said
        self._ended |= any(pattern.search(line.said) for pattern in separators.ends)

    def _front_end_again(self, line: LogLine) -> bool:
        if line.process not in self._front_ends:
            # Several API servers may share one launch, but all start before any engine does. One after a
            # failure begins anew, also where the beginning of the log is missing.
            orphan = self._failed and not self._front_ends
            return orphan or self._furthest > Milestone.ARGUMENTS_PARSED.order
        other = self._front_ends[line.process] != line.pid
        return other or self._failed or self._furthest > Milestone.API_SERVER_STARTED.order

    def _engine_again(self, line: LogLine) -> bool:
        if line.process not in self._engines:
            return False
        return self._engines[line.process] != line.pid or self._furthest >= Milestone.WEIGHTS_LOADING.order
