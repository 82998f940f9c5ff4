"""
What to look for in a log before anything is parsed, and how much of it is enough.

All needles are found in one pass of Vectorscan over the bytes; `Worth` then decides line by line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache

import hyperscan

from k3lib.knowledge.milestones import load_engine_lines
from k3lib.knowledge.signatures import SignKind, load_failures, needles
from k3lib.spec.vocabulary import Milestone

_MOST_SHAPES = 50_000
_MOST_FRESH_STARTS = 64
_SHAPE_BYTES = 4096
_PROCESS_WITHIN_BYTES = 400
_DIGITS = b"0123456789abcdef"  # of counts, times, addresses and request ids
_PROCESS = re.compile(rb"\b(?:pid=\d{1,10}|rank\d{1,5})")
_BEGINNINGS = {Milestone.API_SERVER_STARTED, Milestone.ENGINE_INITIALIZING}


@dataclass(frozen=True, slots=True)
class Needles:
    """
    Literal texts to look for, case-sensitive, by what a line with one of them is worth.

    Args:
        marks: Begin or end a launch: such a line passes.
        telling: Speak of a failure: the line and what follows it pass until they repeat themselves.
        routine: Belong to the normal run as well: pass a while.
    """

    marks: frozenset[str]
    telling: frozenset[str]
    routine: frozenset[str]


@dataclass(frozen=True, slots=True)
class Budget:
    """
    How much of a log may pass.

    Args:
        whole_bytes: At the beginning and at the end of the stream, everything.
        after: Lines after a telling one.
        repeats: Lines of one process that differ in numbers only.
        telling: Lines per telling needle and launch.
        routine: Lines per routine needle and launch.
        sought: Lines with the same telling needles that are counted before these are no longer looked for.
        marks: Lines that begin or end a launch.
    """

    whole_bytes: int = 64 << 10
    after: int = 4
    repeats: int = 32
    telling: int = 10_000
    routine: int = 256
    sought: int = 50_000
    marks: int = 200_000


@cache
def load_needles() -> Needles:
    """
    The needles of everything that is known about engine logs and failures.

    >>> known = load_needles()
    >>> "Avg generation throughput: " in known.routine, "Traceback (most recent" in known.telling
    (True, True)
    """
    lines = load_engine_lines()
    marks = {p.needle for p in (*lines.launches.starts, *lines.launches.ends)}
    marks |= {p.needle for known in lines.milestones if known.name in _BEGINNINGS for p in known.patterns}
    failures = load_failures()
    harmless = {p.needle for s in failures.signatures if s.kind is SignKind.HARMLESS for p in s.patterns}
    routine = harmless | set(failures.routine) | {p.needle for p in lines.patterns()}
    telling = {p.needle for s in failures.signatures if s.kind is not SignKind.HARMLESS for p in s.patterns}
    telling |= set(failures.markers) | set(needles()) - routine
    return Needles(frozenset(marks), frozenset(telling - marks), frozenset(routine - telling - marks))


class Search:
    """
    All needles in one pass, less those that are no longer looked for.

    Args:
        needles: In an order that gives each its bit: needle i is `1 << i`.
    """

    def __init__(self, needles: tuple[str, ...]) -> None:
        self._needles = needles
        self._without = 0
        self._use(_compile(needles, 0))

    def find(self, data: bytes, at: int) -> list[tuple[int, int]]:
        """Where in data, from `at` on, a needle ends, and its bit; in the order of the places."""
        hits: list[tuple[int, int]] = []
        bits = self._bits
        if bits and at < len(data):
            self._database.scan(
                memoryview(data)[at:],  # type: ignore[type-var]  # any buffer will do
                match_event_handler=lambda i, _from, to, _flags, _context: hits.append((at + to, bits[i])),
                scratch=self._scratch,
            )
        return hits

    def narrow(self, without: int) -> None:
        """From now on looks for all needles but these."""
        if without != self._without:
            self._without = without
            self._use(_compile(self._needles, without))

    def widen(self) -> bool:
        """Looks for all needles again; tells whether some were left out before."""
        narrowed = self._without != 0
        self.narrow(0)
        return narrowed

    def _use(self, compiled: tuple[hyperscan.Database, list[int]]) -> None:
        self._database, self._bits = compiled
        # Its own, since the database is shared and a scan lets other threads run.
        self._scratch = hyperscan.Scratch(self._database) if self._bits else None


@lru_cache(maxsize=8)
def _compile(needles: tuple[str, ...], without: int) -> tuple[hyperscan.Database, list[int]]:
    wordings = [(text, 1 << i) for i, needle in enumerate(needles) for text in _wordings(needle)]
    sought = [(text, bit) for text, bit in wordings if not bit & without]
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    if sought:
        texts = [text for text, _ in sought]
        database.compile(texts, ids=list(range(len(texts))), elements=len(texts), flags=0, literal=True)
    return database, [bit for _, bit in sought]


def _wordings(needle: str) -> set[bytes]:
    # A wrapper that writes JSON escapes quotes, backslashes and, some of them, everything beyond ASCII.
    escaped = (json.dumps(needle, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    return {text.encode() for text in (needle, *escaped)}


class Passing(Enum):
    """What becomes of a line."""

    NO = 0
    YES = 1
    TELLING = 2
    ANEW = 3  # it begins or ends a launch


class Worth:
    """
    Decides line by line what passes, and counts the rest.

    Args:
        needles: What is looked for.
        budget: How much of it passes.

    Attributes:
        order: The needles in the order of their bits.
        exhausted: Bits of the needles that no longer count, in this launch.
    """

    def __init__(self, needles: Needles, budget: Budget) -> None:
        self.order = (*sorted(needles.marks), *sorted(needles.telling), *sorted(needles.routine))
        self.exhausted = 0
        self._budget = budget
        self._marks = (1 << len(needles.marks)) - 1
        self._telling = (1 << len(needles.telling)) - 1 << len(needles.marks)
        self._marked = 0
        self._passed: Counter[int] = Counter()
        self._shapes: dict[int, int] = {}
        self._left_out: Counter[int] = Counter()  # by what a line held, since the launch began
        self._left_out_before: Counter[int] = Counter()

    @property
    def left_out(self) -> Counter[str]:
        """For each telling needle, lines that were only counted."""
        counts: Counter[str] = Counter()
        for found, lines in (self._left_out + self._left_out_before).items():
            counts.update({self.order[bit.bit_length() - 1]: lines for bit in _bits(found)})
        return counts

    def judge(self, line: bytes, found: int) -> Passing:
        """Whether a line with these needles passes."""
        found &= ~self.exhausted
        if found & self._marks:
            return self._judge_mark(found & self._marks)
        telling = found & self._telling
        if telling:
            if self._differs(line, telling) and self._spend(telling, self._budget.telling):
                return Passing.TELLING
            self._left_out[telling] += 1
            if self._left_out[telling] >= self._budget.sought:
                self.exhausted |= telling
        routine = found ^ telling
        return Passing.YES if routine and self._spend(routine, self._budget.routine) else Passing.NO

    def _spend(self, found: int, budget: int) -> bool:
        passes = False
        for bit in _bits(found):
            self._passed[bit] += 1
            passes |= self._passed[bit] <= budget
            if bit & ~self._telling and self._passed[bit] >= budget:
                self.exhausted |= bit
        return passes

    def _differs(self, line: bytes, telling: int) -> bool:
        process = _PROCESS.search(line, 0, _PROCESS_WITHIN_BYTES)
        # Needles belong to the shape: `HTTP/1.1" 200` and `HTTP/1.1" 500` differ in more than a number.
        shape = hash((telling, process and process[0], line[:_SHAPE_BYTES].translate(None, _DIGITS)))
        seen = self._shapes.get(shape, 0) + 1
        if seen > 1 or len(self._shapes) < _MOST_SHAPES:
            self._shapes[shape] = seen
        return seen <= self._budget.repeats

    def _judge_mark(self, marks: int) -> Passing:
        self._marked += 1
        if self._marked > self._budget.marks:
            self.exhausted |= marks
            return Passing.NO
        if self._marked > _MOST_FRESH_STARTS:
            return Passing.YES
        self.exhausted = 0
        self._left_out_before += self._left_out
        for counts in (self._passed, self._shapes, self._left_out):
            counts.clear()
        return Passing.ANEW


def _bits(found: int) -> Iterator[int]:
    while found:
        bit = found & -found
        yield bit
        found ^= bit
