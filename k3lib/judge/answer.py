"""The parts of triage's answer: what it says, why, and where that can be checked."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from k3lib.judge.first_error import Launch, meaning
from k3lib.judge.verdict import Evidence
from k3lib.knowledge.signatures import SignKind
from k3lib.logs.failure import Sign
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Domain, Milestone, Oom, Phase, Route

_MOST_EVIDENCE = 12
_MOST_TEXT = 300


class FirstError(Fact):
    """
    Where the first error stands.

    Args:
        file, line, text: The line that names it.
        block: First and last line of the traceback or message around it.
    """

    file: str
    line: int
    text: str
    block: tuple[int, int]


class Reason(Fact):
    """
    One sentence of the answer, as a case and its facts; report/ writes it.

    Args:
        case: Name of the sentence.
        facts: What it needs.
    """

    case: str
    facts: dict[str, Any] = Field(default_factory=dict)


class Step(Fact):
    """
    One milestone on the way.

    Args:
        name: The milestone.
        file, line: Where it stands.
        time: As written, or None.
    """

    name: Milestone
    file: str
    line: int
    time: str | None = None


class Failure(Fact):
    """
    The answer for one log or one incident.

    Args:
        failed: The log does not show an engine that came up and did its work.
        phase: Where it failed, or None if it did not or nobody can tell.
        domain: Whose problem it is, or None.
        first_error: The first error that is nobody's consequence, or None.
        oom: What an out-of-memory message in it is.
        route: What it asks for; `none` for a healthy log, `inconclusive` where the log cannot tell.
        rule: What decided: a signature or a case.
        reasons: Why, in order.
        evidence: Lines to check.
        milestones: Of the launch that answers.
        launch, launches: Which launch answers, and how many there are.
        advice: Family of the next step, or None.
    """

    failed: bool
    route: Route
    rule: str
    reasons: list[Reason]
    phase: Phase | None = None
    domain: Domain | None = None
    first_error: FirstError | None = None
    oom: Oom = Oom.NONE
    evidence: list[Evidence] = Field(default_factory=list)
    milestones: list[Step] = Field(default_factory=list)
    launch: int = 1
    launches: int = 1
    advice: str | None = None


def give_reasons(sign: Sign, launch: Launch, phase: Phase, oom: Oom, fault: Sign | None, launches: int) -> list[Reason]:
    """
    Why a first error means what the answer says.

    Args:
        sign: The first error.
        launch: The launch it stands in, or explains.
        phase: Where it failed.
        oom: What an out-of-memory message in it is.
        fault: The hardware fault that decides instead, or None.
        launches: How many launches the log holds.
    """
    where = {"file": sign.file, "line": sign.line}
    return [
        _say_meaning(sign, where),
        *_say_phase(sign, launch, phase),
        *([Reason(case="hardware", facts=_meaning_of(fault))] if fault else []),
        *([Reason(case=f"oom-{oom.value}", facts=where)] if oom is not Oom.NONE else []),
        *_say_rest(sign, launch),
        *([Reason(case="launches", facts={"n": launches, "launch": launch.number})] if launches > 1 else []),
    ]


def _say_meaning(sign: Sign, where: dict[str, Any]) -> Reason:
    if meaning(sign):
        return Reason(case="means", facts=_meaning_of(sign))
    case = "unknown-exception" if sign.exception else "error-line"
    return Reason(case=case, facts={**where, "what": sign.exception or sign.text[:120]})


def _meaning_of(sign: Sign) -> dict[str, Any]:
    known = meaning(sign)
    return {"file": sign.file, "line": sign.line, "means": known.means.model_dump() if known else {}}


def _say_phase(sign: Sign, launch: Launch, phase: Phase) -> list[Reason]:
    last = launch.last_step(before=sign.line if sign.file == launch.file else None)
    if last is None:
        return []
    return [Reason(case="phase", facts={"phase": phase.value, "milestone": last.name.value, "at": last.line})]


def _say_rest(sign: Sign, launch: Launch) -> list[Reason]:
    after = [other for other in launch.wrappers if other.line > sign.line]
    said = [Reason(case="repeats", facts={"n": len(after) + launch.reading.repeated})] if after else []
    symptom = sign.kind is SignKind.SYMPTOM
    return [*said, *([Reason(case="symptom", facts={"line": sign.line})] if symptom else [])]


def describe_silence(launch: Launch, launches: int) -> dict[str, Any]:
    """The facts about a launch that names no error: how far it came, who waits, where the log ends."""
    timeline, progress = launch.reading.timeline, launch.reading.progress
    last = launch.last_step()
    return {
        "milestone": last.name.value if last else None,
        "at": last.line if last else None,
        "last_line": timeline.last_line,
        "waits": progress.waits,
        "from": progress.first_wait,
        "to": progress.last_wait,
        "open": progress.ranks_open,
        "ranks": progress.ranks,
        "phase": timeline.phase.value,
        "launches": launches,
    }


def gather_evidence(launch: Launch, sign: Sign | None, fault: Sign | None) -> list[Evidence]:
    """Lines where the answer can be checked: the error, what decides with it, the last step before, what it caused."""
    found = [_quote(other) for other in (sign, fault) if other is not None]
    last = launch.last_step(before=sign.line if sign and sign.file == launch.file else None)
    if last is not None:
        found.append(Evidence(file=launch.file, line=last.line, text=last.text))
    progress = launch.reading.progress
    if sign is None and progress.last_wait:
        text = f"{progress.waits} times since line {progress.first_wait}"
        found.append(Evidence(file=launch.file, line=progress.last_wait, text=text))
    others = [*launch.causes, *launch.symptoms, *launch.wrappers]
    return [*found, *(_quote(other) for other in others if other is not sign)][:_MOST_EVIDENCE]


def _quote(sign: Sign) -> Evidence:
    return Evidence(file=sign.file, line=sign.line, text=sign.text[:_MOST_TEXT])


def list_steps(launch: Launch) -> list[Step]:
    """The milestones of a launch, first hit per process."""
    hits = launch.reading.timeline.milestones
    return [Step(name=hit.name, file=launch.file, line=hit.line, time=hit.time) for hit in hits]
