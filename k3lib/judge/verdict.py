"""A rule's finding: facts, an outcome and evidence. The sentences are written by report/ from the facts."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Outcome


class Evidence(Fact):
    """
    Where a fact can be checked.

    Args:
        file: Path inside the session's folder.
        line: Line number by newline, or None.
        text: The line or value itself, short.
    """

    file: str
    line: int | None = None
    text: str = ""


class Verdict(Fact):
    """
    What one rule found.

    Args:
        rule: The rule's name, `start.trials`.
        sources: Numbers of the method's rules that it carries out, `R-11`.
        outcome: PASS, WARN, FAIL, SKIP (evidence missing), ERROR (our rule broke) or NOT_APPLICABLE.
        case: Which of the rule's sentences fits.
        facts: Values that the sentence needs.
        evidence: Where to check.
        sentence: The finding in English, filled in by report/.
        next: The next step in English, filled in by report/.
    """

    rule: str
    sources: list[str]
    outcome: Outcome
    case: str
    facts: dict[str, Any] = Field(default_factory=dict)
    evidence: list[Evidence] = Field(default_factory=list)
    sentence: str = ""
    next: str = ""


def combine_outcomes(outcomes: list[Outcome]) -> Outcome:
    """
    The outcome of a stage from those of its rules: the worst that was found.

    A rule that broke hides a failure, so ERROR weighs as FAIL would; nothing but SKIP is SKIP.

    >>> combine_outcomes([Outcome.PASS, Outcome.WARN, Outcome.NOT_APPLICABLE])
    <Outcome.WARN: 'WARN'>
    >>> combine_outcomes([])
    <Outcome.SKIP: 'SKIP'>
    """
    for outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.WARN, Outcome.PASS):
        if outcome in outcomes:
            return outcome
    return Outcome.SKIP
