"""What error texts mean, as data: signatures.yaml, loaded and typed. A new one touches that file and one case."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from k3lib.knowledge.data import malformed, read_knowledge
from k3lib.knowledge.literals import Literals
from k3lib.knowledge.milestones import load_engine_lines
from k3lib.spec.vocabulary import Domain, Oom, Phase, Route

_FILE = "signatures.yaml"
_LONGEST = 32_768
_SHORT = 400


class _Known(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SignKind(StrEnum):
    """
    What a text can be in an incident.

    `cause` can be the root. `symptom` is one only while no cause is in sight. `wrapper` repeats or announces
    somebody else's error and is never the root. `request` concerns one request while the engine lives.
    `harmless` looks like an error and is none.
    """

    CAUSE = "cause"
    SYMPTOM = "symptom"
    WRAPPER = "wrapper"
    REQUEST = "request"
    HARMLESS = "harmless"


class Origin(StrEnum):
    """Who prints a text: the engine; its surroundings (runtime, orchestrator, client, proxy); the host's kernel."""

    ENGINE = "engine"
    OUTSIDE = "outside"
    KERNEL = "kernel"


class Words(_Known):
    """One text in both languages."""

    en: str
    fr: str


class Advice(_Known):
    """
    What to do about a family of failures.

    Args:
        next: The next step.
        avoid: What would only look like a remedy, or None.
    """

    next: Words
    avoid: Words | None = None


class ErrorPattern(_Known):
    """
    One wording of one error.

    Args:
        needle: Literal text that every such line holds.
        regex: Searched in the message without prefixes; None where the needle says it all.
        sample: A message that must match.
        source: Where the wording was read.
        since, until: First and last release that prints it, or None if not known.
    """

    needle: str
    sample: str
    source: str
    regex: str | None = None
    since: str | None = None
    until: str | None = None

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.regex if self.regex is not None else re.escape(self.needle))

    def search(self, text: str) -> re.Match[str] | None:
        """The match in a message without prefixes, or None."""
        return self._compiled.search(text) if self.needle in text else None


class Signature(_Known):
    """
    One error with its meaning.

    Args:
        id: Its name, the `rule` of an answer.
        kind: What it can be.
        origin: Who prints it.
        patterns: Its wordings, over releases and libraries.
        phase: The phase it proves, whatever the milestones say; None leaves it to frames and milestones.
        at_least: The phase to assume where the log shows no milestone that goes further.
        unplaced: The phase to assume where nothing at all in the log shows one.
        at_most: The phase that it cannot be later than: a start that failed never served.
        oom: What it is if it is the first error; `secondary` means that memory was held by somebody else.
        route, domain: What it asks for, and of whom; None on texts that decide nothing.
        even_quiet: It counts although the engine calls it a warning or less, if the launch fails.
        undecided: Hardware or program: only the kernel's log tells, and a hardware fault there takes over.
        means: One sentence on what it says.
        advice: Name of its family in `advice`.
    """

    id: str
    kind: SignKind = SignKind.CAUSE
    origin: Origin = Origin.ENGINE
    patterns: list[ErrorPattern]
    phase: Phase | None = None
    at_least: Phase | None = None
    unplaced: Phase | None = None
    at_most: Phase | None = None
    oom: Oom = Oom.NONE
    route: Route | None = None
    domain: Domain | None = None
    even_quiet: bool = False
    undecided: bool = False
    means: Words
    advice: str | None = None


class FramePattern(_Known):
    """
    A function in a traceback that tells the phase; the outermost one known decides.

    Args:
        phase: The phase.
        functions: Names of functions, exactly.
    """

    phase: Phase
    functions: list[str]


class FailureKnowledge(_Known):
    """
    All of signatures.yaml.

    Args:
        signatures: In order of precedence inside one line: the first that matches names it.
        frames: Functions that tell the phase.
        advice: Families of next steps.
        markers: Literals of lines that carry structure rather than meaning: tracebacks, levels, waiting.
        routine: The same, of lines that a working server prints all the time.
    """

    signatures: list[Signature]
    frames: list[FramePattern]
    advice: dict[str, Advice]
    markers: list[str]
    routine: list[str]

    def patterns(self) -> Iterator[ErrorPattern]:
        """Every wording of the file, for tests and prefilters."""
        for signature in self.signatures:
            yield from signature.patterns


class Match(NamedTuple):
    """A signature met in a message, and where."""

    signature: Signature
    found: re.Match[str]


@cache
def load_failures() -> FailureKnowledge:
    """
    What is known about error texts.

    Raises:
        KnowledgeError: signatures.yaml is malformed, names a signature twice, or an advice that is not there.

    >>> load_failures().signatures[0].id
    'harmless-platform-probe'
    """
    try:
        known = FailureKnowledge.model_validate(read_knowledge(_FILE))
    except ValidationError as problem:
        raise malformed(_FILE, "signatures as k3lib/knowledge/signatures.py describes them", str(problem)) from problem
    names = [signature.id for signature in known.signatures]
    if len(names) != len(set(names)):
        raise malformed(_FILE, "each id once", ", ".join(sorted({n for n in names if names.count(n) > 1})))
    if missing := {s.advice for s in known.signatures if s.advice} - set(known.advice):
        raise malformed(_FILE, "advice for every name used", ", ".join(sorted(missing)))
    return known


@cache
def _table() -> tuple[list[tuple[Signature, ErrorPattern]], Literals]:
    rows = [(signature, pattern) for signature in load_failures().signatures for pattern in signature.patterns]
    return rows, Literals([pattern.needle for _, pattern in rows])


def match_signature(text: str) -> Match | None:
    """
    The first signature that a message matches, in the order of the file.

    Args:
        text: The message without prefixes; only its first 32,768 characters are looked at.

    >>> match_signature("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB.").signature.id
    'gpu-out-of-memory'
    >>> match_signature("all is well") is None
    True
    """
    # A flood says the same thing over and over; a healthy server does not.
    return _match_short(text) if len(text) <= _SHORT else _match(text[:_LONGEST])


def _match(text: str) -> Match | None:
    rows, literals = _table()
    for row in literals.find(text):
        signature, pattern = rows[row]
        if found := pattern.search(text):
            return Match(signature, found)
    return None


_match_short = lru_cache(maxsize=4096)(_match)


@cache
def frame_phases() -> dict[str, Phase]:
    """The phase of each known function name."""
    return {name: known.phase for known in load_failures().frames for name in known.functions}


@cache
def needles() -> tuple[str, ...]:
    """
    Literals one of which every line that triage may want to see holds: a prefilter's table.

    Lines without any of them can be left out of the stream without changing the answer.
    """
    wanted = {p.needle for p in load_failures().patterns()} | {p.needle for p in load_engine_lines().patterns()}
    return tuple(sorted(wanted | set(load_failures().markers) | set(load_failures().routine)))


@cache
def find_signature(name: str) -> Signature | None:
    """The signature of that id, or None."""
    return next((s for s in load_failures().signatures if s.id == name), None)
