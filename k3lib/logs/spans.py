"""How long each phase of a start took, on one clock, without overlap; or why nobody can tell."""

from __future__ import annotations

from typing import NamedTuple

from k3lib.logs.stamps import Stamp, measure_span
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Phase

_NO_START = "the log begins after the start of the container"


class Boundary(NamedTuple):
    """
    A line that opened a phase, or the last timed line.

    Args:
        phase: The phase it opened; for the end of the log the one it stands in.
        line: Physical line.
        time: The engine's clock, or None.
        outer: The wrapper's clock, or None.
    """

    phase: Phase
    line: int
    time: Stamp | None
    outer: Stamp | None


class PhaseSpan(Fact):
    """
    One phase of one start.

    Args:
        phase: Which.
        first_line, last_line: From the line that opened it to the line that opened the next.
        start, end: Times as written; None where the line has none on the clock used.
        start_s, end_s: Seconds since the first phase that has a time; None if not told.
        duration_s: Seconds, or None.
        reason: Why the duration is None.
        closed: A later phase was reached. The last span of a log ends with the log.
    """

    phase: Phase
    first_line: int
    last_line: int
    start: str | None = None
    end: str | None = None
    start_s: float | None = None
    end_s: float | None = None
    duration_s: float | None = None
    reason: str | None = None
    closed: bool = True


class _Mark(NamedTuple):
    stamp: Stamp | None
    offset_s: float | None
    reason: str | None


def compute_spans(boundaries: list[Boundary], end: Boundary) -> list[PhaseSpan]:
    """
    A span per phase reached.

    Args:
        boundaries: The lines that opened a phase, in order; the first stands for the start of the log.
        end: The last line, with the last time of either clock.

    Returns:
        Spans in the order of a start. The wrapper's clock is used if every boundary has it, else the engine's.
    """
    if not boundaries:
        return []
    opened = boundaries[1:] if len(boundaries) > 1 and boundaries[1].line == boundaries[0].line else boundaries
    points = [*opened, end]
    wrapped = all(point.outer for point in points)
    stamps = [point.outer if wrapped else point.time for point in points]
    if opened[0].phase is Phase.CONTAINER:
        stamps[0] = None
    marks = _place(points, stamps)
    if opened[0].phase is Phase.CONTAINER:
        marks[0] = marks[0]._replace(reason=_NO_START)
    return [
        _span(point, points[i + 1].line, marks[i], marks[i + 1], closed=i + 1 < len(opened))
        for i, point in enumerate(opened)
    ]


def _place(points: list[Boundary], stamps: list[Stamp | None]) -> list[_Mark]:
    marks: list[_Mark] = []
    origin = previous = None
    latest_s = 0.0
    for point, stamp in zip(points, stamps, strict=True):
        if stamp is None:
            marks.append(_Mark(None, None, f"line {point.line} carries no time"))
            continue
        origin = origin or stamp
        step_s, reason = measure_span(previous or stamp, stamp)
        offset_s, far_reason = measure_span(origin, stamp)
        if step_s is None or offset_s is None:
            marks.append(_Mark(stamp, None, reason or far_reason))
        else:
            # Lines of several processes can stand a second out of order; no phase begins before the last one ended.
            latest_s = max(latest_s, offset_s)
            marks.append(_Mark(stamp, latest_s, None))
        previous = stamp
    return marks


def _span(point: Boundary, last_line: int, start: _Mark, end: _Mark, *, closed: bool) -> PhaseSpan:
    duration_s = None
    if start.offset_s is not None and end.offset_s is not None:
        duration_s = round(end.offset_s - start.offset_s, 6)
    return PhaseSpan(
        phase=point.phase,
        first_line=point.line,
        last_line=last_line,
        start=start.stamp.text if start.stamp else None,
        end=end.stamp.text if end.stamp else None,
        start_s=start.offset_s,
        end_s=end.offset_s,
        duration_s=duration_s,
        reason=None if duration_s is not None else start.reason or end.reason,
        closed=closed,
    )
