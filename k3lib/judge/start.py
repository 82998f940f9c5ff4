"""Did the engine start, how far, every time, and as intended? The rules of a minimal start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.drift import PlaceFacts
from k3lib.judge.scene_facts import SceneFacts
from k3lib.judge.trial import TrialRecord
from k3lib.judge.verdict import Evidence, Verdict
from k3lib.knowledge.signatures import load_failures
from k3lib.spec.session import SessionPlan
from k3lib.spec.vocabulary import Outcome
from k3lib.stats.stability import classify_stability


@dataclass(frozen=True)
class SessionFacts:
    """
    What the rules of a session may look at.

    Args:
        plan: What was intended.
        trials: What happened, first reading included.
        debug_variables: Names of debug variables that were set.
        place: How the place stands against the last stable session and against its own beginning.
        scene: What stage 10 froze; None for every other stage.
        compatibility: What stage 20 judges; None for every other stage.
    """

    plan: SessionPlan
    trials: list[TrialRecord]
    debug_variables: list[str]
    place: PlaceFacts = field(default_factory=PlaceFacts)
    scene: SceneFacts | None = None
    compatibility: CompatibilityFacts | None = None

    @property
    def counted(self) -> list[TrialRecord]:
        """The trials that are not void."""
        return [t for t in self.trials if t.counts]

    def by_arm(self) -> dict[str, list[TrialRecord]]:
        """The counted trials of each planned arm; an arm of which none counts has an empty list."""
        return {arm.name: [t for t in self.counted if t.arm == arm.name] for arm in self.plan.arms}


def judge_trials(facts: SessionFacts) -> Verdict:
    """
    Do all fresh starts succeed, or fail in the same place (R-11)? Several arms are judged apart.

    A stage passes when all its trials succeed; their number decides only the word beside it.
    """
    counted = facts.counted
    if not counted:
        reason = "; ".join(f"trial {t.number}: {t.void}" for t in facts.trials) or "no trial was run"
        return Verdict(rule="start.trials", sources=["R-11"], outcome=Outcome.SKIP, case="none", facts={"why": reason})
    if len(facts.plan.arms) > 1:
        return _judge_arms(facts)
    values = _count_arm(counted)
    if values["k"] == values["n"]:
        case = "all"
    elif values["k"] == 0 and len(values["phases"]) == 1:
        case = "same-failure"
    else:
        case = "mixed"
    failed = [t for t in counted if t.failed_phase is not None]
    return Verdict(
        rule="start.trials",
        sources=["R-11", "R-01"],
        outcome=Outcome.FAIL if failed else Outcome.PASS,
        case=case,
        facts={**values, "planned": len(facts.plan.trials())},
        evidence=[_last_milestone(t) for t in failed] or [_last_milestone(t) for t in counted[:1]],
    )


def _judge_arms(facts: SessionFacts) -> Verdict:
    """One count per arm: a failure of one setting says nothing of another, so they are never one series."""
    by_arm = facts.by_arm()
    failed = [t for t in facts.counted if t.failed_phase is not None]
    unknown = [arm for arm, trials in by_arm.items() if not trials]
    return Verdict(
        rule="start.trials",
        sources=["R-11", "R-29"],
        outcome=Outcome.FAIL if failed else Outcome.SKIP if unknown else Outcome.PASS,
        case="arms",
        facts={
            "arms": [{"name": arm, **_count_arm(trials)} for arm, trials in by_arm.items()],
            "planned": len(facts.plan.trials()),
        },
        evidence=[_last_milestone(t) for t in failed]
        or [_last_milestone(trials[0]) for trials in by_arm.values() if trials],
    )


def _count_arm(counted: list[TrialRecord]) -> dict[str, Any]:
    """How often the starts of one arm succeeded, where the others failed, and the word for the series."""
    stability = classify_stability([t.failed_phase for t in counted])
    failed = [t for t in counted if t.failed_phase is not None]
    return {
        "n": stability.n,
        "k": stability.n - len(failed),
        "low": stability.low,
        "high": stability.high,
        "word": stability.word,
        "phases": sorted({t.failed_phase.value for t in failed if t.failed_phase}),
        "failure": failed[0].failure if failed else None,
    }


def judge_first_error(facts: SessionFacts) -> Verdict:
    """Which line of the first failed trial's log is the first error, and what does it ask for (R-06, R-07)?"""
    failed = [t for t in facts.trials if t.failed_phase is not None]
    if not failed:
        return Verdict(rule="start.first_error", sources=["R-07"], outcome=Outcome.NOT_APPLICABLE, case="none")
    told = [(t, t.diagnosis, t.diagnosis.first_error) for t in failed if t.diagnosis and t.diagnosis.first_error]
    if not told:
        numbers = {"trials": [t.number for t in failed]}
        return Verdict(rule="start.first_error", sources=["R-07"], outcome=Outcome.SKIP, case="untold", facts=numbers)
    trial, failure, first = told[0]
    advice = load_failures().advice.get(failure.advice or "")
    return Verdict(
        rule="start.first_error",
        sources=["R-06", "R-07"],
        outcome=Outcome.WARN,
        case="found",
        facts={
            "trial": trial.number,
            "file": first.file,
            "line": first.line,
            "text": first.text[:200],
            "signature": failure.rule,
            "route": failure.route.value,
            "next": advice.next.model_dump() if advice else {"en": "", "fr": ""},
        },
        evidence=[Evidence(file=first.file, line=first.line, text=first.text[:200])],
    )


def judge_expected_failure(facts: SessionFacts) -> Verdict:
    """Was the failure that the session came to reproduce seen every time, in its phase (R-11)?"""
    wanted = facts.plan.expect_phase
    if not wanted:
        return Verdict(rule="start.expected_failure", sources=["R-11"], outcome=Outcome.NOT_APPLICABLE, case="none")
    counted = facts.counted
    seen = [t for t in counted if t.failed_phase is not None and t.failed_phase.value == wanted]
    every = bool(counted) and len(seen) == len(counted)
    by_arm = [
        {"name": arm, "n": len(trials), "k": sum(t in seen for t in trials)} for arm, trials in facts.by_arm().items()
    ]
    return Verdict(
        rule="start.expected_failure",
        sources=["R-11"],
        outcome=Outcome.PASS if every else Outcome.FAIL if counted else Outcome.SKIP,
        case="reproduced" if every else "not-reproduced" if counted else "unknown",
        facts={"phase": wanted, "k": len(seen), "n": len(counted), "arms": by_arm if len(by_arm) > 1 else []},
        evidence=[_last_milestone(t) for t in seen[:1]],
    )


def judge_effective_state(facts: SessionFacts) -> Verdict:
    """Does the engine run what was intended? A mismatch voids the trial; unknown is said and voids nothing."""
    rows = [(t, row) for t in facts.trials for row in t.effective]
    if not rows:
        return Verdict(rule="start.effective_state", sources=["R-29"], outcome=Outcome.SKIP, case="none")
    wrong = [(t, row) for t, row in rows if row.agrees is False]
    unknown = sorted({row.name for _, row in rows if row.agrees is None and row.intended is not None})
    known = sorted({row.name for _, row in rows if row.agrees})
    return Verdict(
        rule="start.effective_state",
        sources=["R-29"],
        outcome=Outcome.FAIL if wrong else Outcome.PASS if known else Outcome.SKIP,
        case="mismatch" if wrong else "unknown" if unknown else "agrees",
        facts={
            "known": known,
            "unknown": unknown,
            "wrong": [
                {"trial": t.number, "name": r.name, "intended": r.intended, "effective": r.effective} for t, r in wrong
            ],
        },
        evidence=[Evidence(file=f"trial-{t.number}/endpoint.json", text=f"{r.name} = {r.effective}") for t, r in wrong],
    )


def judge_cache_said(facts: SessionFacts) -> Verdict:
    """Does the base say prefix caching off, instead of leaving it to a release's default (R-19, C1)?"""
    said = {arm.name: arm.settings.prefix_caching for arm in facts.plan.arms}
    silent = [name for name, value in said.items() if value is None]
    on = [name for name, value in said.items() if value]
    if silent:
        case, outcome = "unsaid", Outcome.WARN
    elif on and "prefix_caching" not in facts.plan.change:
        case, outcome = "on", Outcome.WARN
    else:
        case, outcome = "off", Outcome.PASS
    return Verdict(
        rule="start.cache_said", sources=["R-19", "C1"], outcome=outcome, case=case, facts={"arms": silent or on}
    )


def judge_debug_variables(facts: SessionFacts) -> Verdict:
    """Are debug variables set? They keep a trial out of every series (R-17)."""
    names = facts.debug_variables
    return Verdict(
        rule="start.debug_variables",
        sources=["R-17"],
        outcome=Outcome.WARN if names else Outcome.PASS,
        case="set" if names else "none",
        facts={"names": names},
    )


def judge_dead_variables(facts: SessionFacts) -> Verdict:
    """Does the engine say that it does not know a variable it was given? Then a setting is silently dead."""
    read = [t for t in facts.trials if t.timeline is not None]
    if not read:
        return Verdict(rule="start.dead_variables", sources=["C1"], outcome=Outcome.SKIP, case="none")
    told = [t.timeline.values.unknown_environment_variables for t in read if t.timeline]
    names = sorted({name for trial in told for name in trial})
    return Verdict(
        rule="start.dead_variables",
        sources=["C1"],
        outcome=Outcome.WARN if names else Outcome.PASS,
        case="dead" if names else "known",
        facts={"names": names},
    )


def judge_leftovers(facts: SessionFacts) -> Verdict:
    """Was everything of the engine gone after the stop? A survivor spoils the next trial's memory."""
    left = [(t.number, name) for t in facts.trials for name in t.launch.leftovers]
    return Verdict(
        rule="start.leftovers",
        sources=["R-15"],
        outcome=Outcome.WARN if left else Outcome.PASS if facts.trials else Outcome.SKIP,
        case="left" if left else "clean",
        facts={"left": [f"trial {number}: {name}" for number, name in left]},
    )


def _last_milestone(trial: TrialRecord) -> Evidence:
    file = f"trial-{trial.number}/engine.log"
    if trial.timeline is None or not trial.timeline.milestones:
        return Evidence(file=file, text="no milestone in the log")
    last = max(trial.timeline.milestones, key=lambda hit: hit.line)
    return Evidence(file=file, line=last.line, text=last.text[:200])
