"""
What the team may change: six questions in their order, and what follows from the answers (R-48, R-50, R-51).

The answers later decide between acting and writing a dossier; here they only say which repairs may be offered.
"""

from __future__ import annotations

from k3lib.judge.compatibility_constraint import Finding, constraint, not_applicable, passes, skips, warns
from k3lib.judge.compatibility_driver import judge_driver_branch, judge_driver_cuda
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.verdict import Verdict
from k3lib.spec.campaign import Control
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Outcome

QUESTIONS = tuple(Control.model_fields)
"""The six questions, in order: driver, image, network, all_to_all, prefill_decode_split, replay."""

DOSSIER: dict[str, tuple[str, ...]] = {
    "version-incompatible": ("driver_loaded", "driver_branch", "driver_cuda", "compute_capability", "release"),
    "memory-insufficient": ("gpu_count", "memory_total", "weights_fit"),
    "network-unsuitable": ("link", "all_to_all", "moe_backend"),
    "cache-too-costly": (),
    "concurrency-unrealistic": (),
    "no-margin-for-resumes": (),
}
"""The six items of a dossier (R-50), and the constraints that tell of each; the last three are later stages'."""


class DossierItem(Fact):
    """
    One of six things that a dossier confirms, refutes or leaves open.

    Args:
        key: Its name.
        confirmed: True, False, or None where this stage cannot know.
        rules: The rules that tell.
    """

    key: str
    confirmed: bool | None
    rules: list[str]


@constraint("control", "R-48", "R-50", any_model=True)
def judge_control(facts: CompatibilityFacts) -> Finding:
    """What may the team change? Without driver and network it writes a dossier; without replay nothing can be tuned."""
    vector = {question: getattr(facts.control, question) for question in QUESTIONS}
    unknown = [question for question, answer in vector.items() if answer is None]
    told = {"vector": vector, "unknown": unknown, "conditions": facts.conditions}
    dossier = facts.control.driver is False and facts.control.network is False
    if dossier:
        return warns("dossier-no-replay" if facts.control.replay is False else "dossier", **told)
    if facts.control.replay is False:
        return warns("no-replay", **told)
    if unknown:
        return Finding(Outcome.SKIP, "unknown", told)
    return passes("known", **told)


@constraint("rebuild", "R-51", vendor="nvidia", real=True, pretended=True)
def judge_rebuild(facts: CompatibilityFacts) -> Finding:
    """Is rebuilding the image from a branch to be offered? Only where driver, image and network are controlled."""
    needs = [judge_driver_branch(facts), judge_driver_cuda(facts)]
    if not any(verdict.outcome is Outcome.FAIL for verdict in needs):
        unknown = [verdict for verdict in needs if verdict.outcome is Outcome.SKIP]
        return skips(unknown[0].facts["evidence"], unknown[0].facts["of"]) if unknown else not_applicable("not-needed")
    control = facts.control
    held = {"driver": control.driver, "image": control.image, "network": control.network}
    told = {"held": held, "lacking": [name for name, answer in held.items() if not answer]}
    if not told["lacking"]:
        return warns("offered", **told)
    return warns("risky" if control.image else "withheld", **told)


def compile_dossier(verdicts: list[Verdict]) -> list[DossierItem]:
    """
    The six items of a dossier, as far as this stage can tell.

    Args:
        verdicts: What the constraints found.

    Returns:
        Six items in order; one is confirmed by a failure, refuted if all its rules were answered without one.
    """
    found = {verdict.rule.removeprefix("compatibility."): verdict.outcome for verdict in verdicts}
    items = []
    for key, rules in DOSSIER.items():
        told = {name: found[name] for name in rules if name in found and found[name] is not Outcome.NOT_APPLICABLE}
        failed = [name for name, outcome in told.items() if outcome is Outcome.FAIL]
        answered = bool(told) and all(outcome in (Outcome.PASS, Outcome.WARN) for outcome in told.values())
        items.append(
            DossierItem(key=key, confirmed=True if failed else False if answered else None, rules=failed or list(told))
        )
    return items
