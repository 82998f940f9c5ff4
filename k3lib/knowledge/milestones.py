"""The lines that an engine prints on its way up, as data: milestones.yaml, loaded and typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from k3lib.knowledge.data import malformed, read_knowledge
from k3lib.spec.vocabulary import Milestone, Phase

_FILE = "milestones.yaml"
FrontEnd = Literal["python", "rust"]
Runner = Literal["v1", "v2"]


class _Known(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LinePattern(_Known):
    """
    One wording of one line.

    Args:
        needle: Literal text that every such line holds: a cheap look before the regular expression.
        regex: Searched in the message; a named group is a fact of the engine.
        sample: A line that must match.
        source: Where the wording was read.
        front_end: The only front end that prints it, or None.
        runner: The only model runner that prints it, or None.
    """

    needle: str
    regex: str
    sample: str
    source: str
    front_end: FrontEnd | None = None
    runner: Runner | None = None

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.regex)

    @property
    def groups(self) -> list[str]:
        """Names of the facts that a match holds."""
        return list(self._compiled.groupindex)

    def search(self, text: str) -> re.Match[str] | None:
        """The match in a message without prefixes, or None."""
        return self._compiled.search(text) if self.needle in text else None


class MilestoneLines(_Known):
    """
    One milestone and the lines that prove it.

    Args:
        name: The milestone.
        opens: The phase in which a failure stands once it was printed; None moves nothing.
        patterns: Its wordings.
    """

    name: Milestone
    opens: Phase | None
    patterns: list[LinePattern]


class LaunchLines(_Known):
    """Lines that begin or end a launch in a log that holds several."""

    starts: list[LinePattern]
    ends: list[LinePattern]


class EngineLines(_Known):
    """
    All of milestones.yaml.

    Args:
        milestones: In the order of a start, each milestone once.
        facts: Lines that prove no step and still tell something.
        launches: What separates launches.
    """

    milestones: list[MilestoneLines]
    facts: list[LinePattern]
    launches: LaunchLines

    def patterns(self) -> Iterator[LinePattern]:
        """Every pattern of the file, for tests and prefilters."""
        for lines in self.milestones:
            yield from lines.patterns
        yield from self.facts
        yield from self.launches.starts
        yield from self.launches.ends


@cache
def load_engine_lines() -> EngineLines:
    """
    What is known about an engine's log lines.

    Raises:
        KnowledgeError: milestones.yaml is malformed, names a milestone twice, or leaves one out.

    >>> load_engine_lines().milestones[0].name
    <Milestone.CONTAINER_STARTED: 'container-started'>
    """
    try:
        lines = EngineLines.model_validate(read_knowledge(_FILE))
        for pattern in lines.patterns():
            re.compile(pattern.regex)
    except (ValidationError, re.error) as problem:
        raise malformed(_FILE, "patterns as its head describes them", str(problem).splitlines()[0]) from problem
    names = [known.name for known in lines.milestones]
    if names != list(Milestone):
        raise malformed(_FILE, "every milestone once, in the order of a start", ", ".join(names))
    return lines
