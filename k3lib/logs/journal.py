"""The reading of a timeline in its fixed order: what must appear, and what may not be concluded (R-24)."""

from __future__ import annotations

from k3lib.knowledge.journal import Words, load_reading_steps
from k3lib.logs.timeline import Timeline
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Milestone


class JournalStep(Fact):
    """
    One step of the reading, applied to one timeline.

    Args:
        number: 1 to 10.
        step, must_appear, if_missing, forbidden: The texts, English and French.
        reached: One of the step's markers is in the log.
        milestone: The marker that was found first, or None.
        line: Its line, or None.
        time: Its time as written, or None.
    """

    number: int
    step: Words
    must_appear: Words
    if_missing: Words
    forbidden: Words
    reached: bool
    milestone: Milestone | None = None
    line: int | None = None
    time: str | None = None


def journal_steps(timeline: Timeline) -> list[JournalStep]:
    """
    The ten steps of the reading.

    Args:
        timeline: One launch.

    Returns:
        All ten, in reading order, reached or not.

    >>> [step.reached for step in journal_steps(Timeline())] == [False] * 10
    True
    """
    steps = []
    for known in load_reading_steps():
        hit = next((hit for hit in timeline.milestones if hit.name in known.markers), None)
        if known.beyond and timeline.phase.order <= known.beyond.order:
            hit = None
        steps.append(
            JournalStep(
                **known.model_dump(exclude={"markers", "beyond"}),
                reached=hit is not None,
                milestone=hit.name if hit else None,
                line=hit.line if hit else None,
                time=hit.time if hit else None,
            )
        )
    return steps


def first_missing(steps: list[JournalStep]) -> JournalStep | None:
    """
    The step at which a failure is judged: the first whose marker is missing, or None if all are there.

    >>> first_missing(journal_steps(Timeline())).number
    1
    """
    return next((step for step in steps if not step.reached), None)
