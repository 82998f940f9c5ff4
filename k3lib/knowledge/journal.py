"""The ten steps in which a log is read, in two languages: journal.yaml, loaded and typed."""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel, ConfigDict, ValidationError

from k3lib.knowledge.data import malformed, read_knowledge
from k3lib.spec.vocabulary import Milestone, Phase

_FILE = "journal.yaml"


class _Known(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Words(_Known):
    """One sentence in both languages."""

    en: str
    fr: str


class ReadingStep(_Known):
    """
    One step of the reading.

    Args:
        number: 1 to 10, in reading order.
        markers: Milestones, any one of which proves the step.
        beyond: The phase that the launch must have left for a marker to count, or None.
        step: Its name.
        must_appear: What the log must show.
        if_missing: Where to look when it does not.
        forbidden: The conclusion that must not be drawn from a failure here.
    """

    number: int
    markers: list[Milestone]
    beyond: Phase | None = None
    step: Words
    must_appear: Words
    if_missing: Words
    forbidden: Words


class _Journal(_Known):
    steps: list[ReadingStep]


@cache
def load_reading_steps() -> list[ReadingStep]:
    """
    The reading order of a log.

    Raises:
        KnowledgeError: journal.yaml is malformed or its numbers are no sequence from 1.

    >>> load_reading_steps()[3].step.fr
    'Poids'
    """
    try:
        steps = _Journal.model_validate(read_knowledge(_FILE)).steps
    except ValidationError as problem:
        raise malformed(_FILE, "steps with markers and two languages", str(problem).splitlines()[0]) from problem
    numbers = [step.number for step in steps]
    if numbers != list(range(1, len(steps) + 1)):
        raise malformed(_FILE, "steps numbered from 1", str(numbers))
    return steps
