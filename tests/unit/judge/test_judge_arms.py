"""Several arms are judged apart: what one setting does is never averaged with what another does."""

from __future__ import annotations

from typing import Any

import pytest

from k3lib.judge.start import SessionFacts, judge_expected_failure, judge_trials
from k3lib.judge.trial import TrialRecord
from k3lib.report.sentences import render_verdict
from k3lib.spec.campaign import Campaign, EnginePlace, ModelSource
from k3lib.spec.request import FrozenRequest, Message
from k3lib.spec.results import LaunchResult
from k3lib.spec.session import SessionPlan, TrialSpec, plan_arms
from k3lib.spec.settings import EngineSettings
from k3lib.spec.vocabulary import Ending, EngineKind, Objective, Outcome, Phase, StageName

EIGHT, THREE = "tensor_parallel=8", "tensor_parallel=3"


def plan(trials: int, change: Any, expect: str = "") -> SessionPlan:
    """A session over the base tensor_parallel 8."""
    base = EngineSettings(prefix_caching=False, tensor_parallel=8)
    campaign = Campaign(
        name="c", objective=Objective.POC, engine=EnginePlace(kind=EngineKind.LOCAL), model=ModelSource(name="m"),
        base=base, request="minimal.yaml",
    )  # fmt: skip
    request = FrozenRequest(
        name="r", messages=[Message(role="user", content="x")], max_tokens=1, temperature=0.0, timeout_s=1.0
    )
    spec = TrialSpec(change={"tensor_parallel": change} if change else {}, trials=trials, expect_phase=expect)
    return SessionPlan(
        stage=StageName.MINIMAL_START, spec=spec, campaign=campaign, arms=plan_arms(spec, base), request=request,
        request_id=request.request_id("m"), release="0.33.0",
    )  # fmt: skip


def facts(intended: SessionPlan, failing: dict[str, Phase], void: str = "") -> SessionFacts:
    """All planned trials were run; the arms that are named failed in their phase, the void one does not count."""
    launch = LaunchResult(
        kind=EngineKind.LOCAL, argv=[], env={}, command="", base_url=None, started_at="2026-11-05T09:00:00+00:00",
        ending=Ending.STOPPED,
    )  # fmt: skip
    records = [
        TrialRecord(
            number=number, arm=arm.name, launch=launch, failed_phase=failing.get(arm.name),
            failure="it exited" if arm.name in failing else None, void="a mismatch" if arm.name == void else None,
        )
        for number, arm in intended.trials()
    ]  # fmt: skip
    return SessionFacts(plan=intended, trials=records, debug_variables=[])


def test_an_arm_that_always_fails_is_not_an_intermittent_session() -> None:
    """Three of three beside none of three are two findings, and each arm is named with its own."""
    verdict = judge_trials(facts(plan(3, [8, 3]), {THREE: Phase.WEIGHTS}))
    assert (Outcome.FAIL, "arms") == (verdict.outcome, verdict.case)
    assert [(EIGHT, 3, 3), (THREE, 0, 3)] == [(a["name"], a["k"], a["n"]) for a in verdict.facts["arms"]]
    sentence, following = render_verdict(verdict)
    assert f"{EIGHT}: ready in 3 of 3 fresh starts, too few to say stable" in sentence
    assert f"{THREE}: failed in weights in 3 of 3" in sentence
    assert "ntermittent" not in sentence
    assert THREE in following
    assert EIGHT not in following


@pytest.mark.parametrize(("trials", "word"), [(4, "too few to say stable"), (5, "stable")])
def test_each_arm_needs_its_own_five_starts(trials: int, word: str) -> None:
    """Eight starts over two arms are four each, which is too few; the French sentence says as much."""
    verdict = judge_trials(facts(plan(trials, [8, 4]), {}))
    assert Outcome.PASS is verdict.outcome
    sentence, _ = render_verdict(verdict)
    assert 2 == sentence.count(f"{trials} of {trials} fresh starts, {word},")
    assert 2 == render_verdict(verdict, "fr")[0].count(f"{trials} démarrages à froid sur {trials}")


def test_an_arm_without_a_counted_start_is_unknown() -> None:
    """The stage does not pass on the other arm alone."""
    verdict = judge_trials(facts(plan(3, [8, 3]), {}, void=THREE))
    assert Outcome.SKIP is verdict.outcome
    sentence, following = render_verdict(verdict)
    assert f"{THREE}: no start counts" in sentence
    assert THREE in following


def test_one_arm_keeps_its_sentence() -> None:
    """Without a second arm there is nothing to tell apart."""
    assert "all" == judge_trials(facts(plan(5, None), {})).case
    assert "same-failure" == judge_trials(facts(plan(5, 3), {THREE: Phase.WEIGHTS})).case


def test_an_expected_failure_is_counted_by_arm() -> None:
    """A failure that only one of two arms shows was not reproduced in all, and the sentence says by which."""
    verdict = judge_expected_failure(facts(plan(3, [8, 3], "weights"), {THREE: Phase.WEIGHTS}))
    assert (Outcome.FAIL, 3, 6) == (verdict.outcome, verdict.facts["k"], verdict.facts["n"])
    assert f"By arm: {EIGHT} 0 of 3, {THREE} 3 of 3." in render_verdict(verdict)[0]
    alone = judge_expected_failure(facts(plan(3, None, "weights"), {"base": Phase.WEIGHTS}))
    assert Outcome.PASS is alone.outcome
    assert "By arm" not in render_verdict(alone)[0]
