"""Runs the catalogue over a session. A rule that breaks is an ERROR of its own, never a failed check."""

from __future__ import annotations

from k3lib.judge.catalogue import RULES
from k3lib.judge.start import SessionFacts
from k3lib.judge.verdict import Verdict, combine_outcomes
from k3lib.spec.vocabulary import Outcome, SessionState


def judge_session(facts: SessionFacts) -> list[Verdict]:
    """What every rule of the stage finds, in the order of the catalogue."""
    verdicts = []
    for rule in RULES.get(facts.plan.stage, []):
        try:
            verdicts.append(rule(facts))
        except Exception as problem:  # a broken rule must not hide the others, nor pass for a finding
            where = f"{type(problem).__name__}: {problem}"
            verdicts.append(
                Verdict(rule=rule.__name__, sources=[], outcome=Outcome.ERROR, case="broken", facts={"why": where})
            )
    return verdicts


def judge_stage(verdicts: list[Verdict]) -> Outcome:
    """
    The outcome of the stage.

    Without one counted trial nothing is known, whatever the other rules say. Where nothing failed and too little is
    known of the path to call it supported, the stage is not known to pass.
    """
    deciding = [v for v in verdicts if v.rule == "start.trials"]
    if deciding and deciding[0].outcome is Outcome.SKIP:
        broken = [v for v in verdicts if v.outcome is Outcome.ERROR]
        return Outcome.ERROR if broken else Outcome.SKIP
    outcome = combine_outcomes([v.outcome for v in verdicts])
    unknown = any(v.rule == "compatibility.path" and v.outcome is Outcome.SKIP for v in verdicts)
    return Outcome.SKIP if unknown and outcome in (Outcome.WARN, Outcome.PASS) else outcome


def judge_ending(outcome: Outcome, state: SessionState) -> Outcome:
    """
    The outcome of a stage whose session may have been cut short: what failed has failed, but nothing has passed.

    >>> judge_ending(Outcome.PASS, SessionState.INTERRUPTED), judge_ending(Outcome.FAIL, SessionState.KILLED)
    (<Outcome.SKIP: 'SKIP'>, <Outcome.FAIL: 'FAIL'>)
    """
    return Outcome.SKIP if outcome in (Outcome.PASS, Outcome.WARN) and state is not SessionState.CLOSED else outcome
