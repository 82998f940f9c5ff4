"""Did the place stay the same: since the last stable session, and while the session ran? And is it fit to try in?"""

from __future__ import annotations

from k3lib.judge.drift import DriftReport
from k3lib.judge.start import SessionFacts
from k3lib.judge.verdict import Evidence, Verdict
from k3lib.spec.settings import name_changes
from k3lib.spec.vocabulary import Outcome, Voids

_FILE = "fingerprint.json"


def judge_since_stable(facts: SessionFacts) -> Verdict:
    """Is the place that of the last stable session, but for the one change (R-15, R-29)?"""
    report = facts.place.since_stable()
    if report is None:
        return Verdict(rule="place.since_stable", sources=["R-15", "R-29"], outcome=Outcome.NOT_APPLICABLE, case="none")
    names = name_changes(report.changes)
    if names:
        case, outcome = "changed", Outcome.WARN
    elif report.unknown:
        case, outcome = "unknown", Outcome.WARN
    else:
        case, outcome = "same", Outcome.PASS
    return Verdict(
        rule="place.since_stable",
        sources=["R-15", "R-29", "C12"],
        outcome=outcome,
        case=case,
        facts={
            "baseline": facts.place.baseline_name,
            "names": names,
            "unknown": [u.name for u in report.unknown],
            "other_place": report.same_place is False,
        },
        evidence=_show(report),
    )


def judge_during(facts: SessionFacts) -> Verdict:
    """Did the place change while the session ran? Then its trials are not one series (R-12, R-15)."""
    report = facts.place.during()
    if report is None:
        return Verdict(rule="place.during", sources=["R-12"], outcome=Outcome.SKIP, case="none")
    reasons = explain_drift(report)
    return Verdict(
        rule="place.during",
        sources=["R-12", "R-15"],
        outcome=Outcome.WARN if reasons else Outcome.PASS,
        case="changed" if reasons else "same",
        facts={"names": reasons, "digest": facts.place.begin.digest[:12] if facts.place.begin else None},
        evidence=_show(report),
    )


def judge_conditions(facts: SessionFacts) -> Verdict:
    """Is anything wrong with the place itself, so that what runs there does not count (R-12, R-63)?"""
    if facts.place.begin is None:
        return Verdict(rule="place.conditions", sources=["R-12"], outcome=Outcome.SKIP, case="none")
    found = [c for c in facts.place.conditions() if c.voids is not Voids.NOTHING and c.kind != "debug-variable"]
    return Verdict(
        rule="place.conditions",
        sources=["R-12", "R-15", "R-63"],
        outcome=Outcome.WARN if found else Outcome.PASS,
        case="found" if found else "clean",
        facts={"kinds": sorted({c.kind for c in found})},
        evidence=[Evidence(file=_FILE, text=f"{c.kind}: {c.facts}"[:300]) for c in found[:5]],
    )


def judge_debug_leftover(facts: SessionFacts) -> Verdict:
    """Is a debug variable still there that an earlier session set? That is drift, not a setting (R-17)."""
    reaching = [n for c in facts.place.conditions() if c.kind == "debug-variable" for n in c.facts["names"]]
    now = sorted({*reaching, *facts.debug_variables})
    left = [name for name in now if name in facts.place.debug_before]
    return Verdict(
        rule="place.debug_leftover",
        sources=["R-17"],
        outcome=Outcome.WARN if left else Outcome.PASS,
        case="left" if left else "clean",
        facts={"names": left},
        evidence=[Evidence(file=_FILE, text=name) for name in left],
    )


def explain_incomparable(facts: SessionFacts) -> list[str]:
    """Why a session's numbers and stability belong to no series, because of its place; empty is right."""
    during = facts.place.during()
    reasons = [f"changed while it ran: {name}" for name in explain_drift(during)] if during else []
    voiding = {c.kind for c in facts.place.conditions() if c.voids is Voids.TRIALS}
    return reasons + [f"the place was not fit when it began: {kind}" for kind in sorted(voiding)]


def explain_drift(report: DriftReport) -> list[str]:
    """What changed or appeared, a name each, as far as it takes anything away."""
    changed = [f"{d.kind} ({', '.join(m.key for m in d.members[:3])})" for d in report.differences]
    return changed + [c.kind for c in report.appeared if c.voids is not Voids.NOTHING]


def _show(report: DriftReport) -> list[Evidence]:
    members = [member for drift in report.differences for member in drift.members]
    return [Evidence(file=_FILE, text=f"{m.key}: {m.ours} → {m.theirs}"[:300]) for m in members[:5]]
