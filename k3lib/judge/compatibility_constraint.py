"""What the constraints of the recipe have in common: when one does not apply, and how it says what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.verdict import Evidence, Verdict
from k3lib.knowledge.recipe_schema import Vendor
from k3lib.spec.vocabulary import Objective, Outcome

Constraint = Callable[[CompatibilityFacts], Verdict]

FACTS_FILE = "compatibility.json"
"""Where the facts of stage 20 are kept in its session's folder."""


_JUDGED = (Outcome.PASS, Outcome.WARN, Outcome.FAIL)
"""What was judged can be checked in that file; what was not has nothing to check."""


@dataclass(frozen=True)
class Finding:
    """
    What a constraint found.

    Args:
        outcome: As in a verdict.
        case: Which of the rule's sentences fits.
        facts: Values that the sentence needs.
        evidence: One line each; where it stands is added.
    """

    outcome: Outcome
    case: str
    facts: dict[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()

    def seen(self, *evidence: str | None) -> Finding:
        """The same with evidence."""
        return Finding(self.outcome, self.case, self.facts, tuple(line for line in evidence if line))


def passes(case: str, **facts: Any) -> Finding:
    """Nothing stands against it."""
    return Finding(Outcome.PASS, case, facts)


def warns(case: str, **facts: Any) -> Finding:
    """It may work, and is to be known."""
    return Finding(Outcome.WARN, case, facts)


def fails(case: str, **facts: Any) -> Finding:
    """It cannot work."""
    return Finding(Outcome.FAIL, case, facts)


def off_path(facts: CompatibilityFacts, case: str, **values: Any) -> Finding:
    """Outside what the recipe offers: to be labelled in a proof of concept, a failure for a service (C17)."""
    tolerated = facts.objective in (Objective.POC, Objective.AGENT)
    return Finding(Outcome.WARN if tolerated else Outcome.FAIL, case, values)


def skips(evidence: str, of: str | None = None, why: str | None = None, **facts: Any) -> Finding:
    """
    Not judged for want of evidence; never a pass.

    Args:
        evidence: What is missing, a key of `evidence` in sentences.yaml, which also says how to get it.
        of: Which host or image, or None.
        why: Why it is missing, as the look at the machine told; or None.
        facts: Values that the way to get it needs.
    """
    return Finding(Outcome.SKIP, "missing", {"evidence": evidence, "of": of, "why": why, **facts})


def not_applicable(case: str, **facts: Any) -> Finding:
    """It cannot exist here, for a reason that a sentence gives; closes no gate."""
    return Finding(Outcome.NOT_APPLICABLE, case, facts)


def constraint(
    name: str,
    *sources: str,
    vendor: Vendor | None = None,
    real: bool = False,
    pretended: bool = False,
    any_model: bool = False,
) -> Callable[[Callable[[CompatibilityFacts], Finding]], Constraint]:
    """
    Make a rule of a question to the facts.

    Args:
        name: The rule's name without `compatibility.`.
        sources: Numbers of the method's rules that it carries out.
        vendor: Only for these GPUs.
        real: Only where there is a machine.
        pretended: Also on the rehearsal's pretend machine, where that one can be asked.
        any_model: Also for models that the recipe is not about.

    Returns:
        A decorator; the rule answers NOT_APPLICABLE by itself where it has nothing to judge.
    """

    def decorate(question: Callable[[CompatibilityFacts], Finding]) -> Constraint:
        @wraps(question)
        def rule(facts: CompatibilityFacts) -> Verdict:
            absent = real and facts.modelled is not None and not (pretended and facts.pretends)
            found = _stands_aside(facts, vendor, absent, any_model) or question(facts)
            lines = found.evidence or (("",) if found.outcome in _JUDGED else ())
            return Verdict(
                rule=f"compatibility.{name}",
                sources=list(sources),
                outcome=found.outcome,
                case=found.case,
                facts=found.facts,
                evidence=[Evidence(file=FACTS_FILE, text=line) for line in lines],
            )

        return rule

    return decorate


def _stands_aside(facts: CompatibilityFacts, vendor: Vendor | None, absent: bool, any_model: bool) -> Finding | None:
    if not any_model and facts.judged is None:
        return not_applicable("not-k3", model=facts.model)
    if absent:
        return not_applicable("modelled", machine=facts.modelled)
    if vendor and facts.vendor not in (None, vendor):
        return not_applicable("other-vendor", vendor=facts.vendor)
    return None
