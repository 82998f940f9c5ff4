"""Sessions: one change, arms, and the refusal of a second difference."""

from __future__ import annotations

from typing import Any

import pytest

from k3lib.errors import SpecError
from k3lib.spec.campaign import Campaign, EnginePlace, ModelSource
from k3lib.spec.request import FrozenRequest, Message
from k3lib.spec.session import SessionPlan, SessionSpec, TrialSpec, check_one_variable, plan_arms, stage_of
from k3lib.spec.settings import EngineSettings
from k3lib.spec.validation import load_model
from k3lib.spec.vocabulary import EngineKind, Objective, StageName

BASE = EngineSettings(prefix_caching=False, max_model_len=16384, tensor_parallel=8)


def campaign(**changes: Any) -> Campaign:
    """A campaign with some of its parts replaced."""
    parts: dict[str, Any] = {
        "name": "c",
        "objective": Objective.POC,
        "engine": EnginePlace(kind=EngineKind.LOCAL),
        "model": ModelSource(name="m"),
        "base": BASE,
        "request": "minimal.yaml",
    }
    return Campaign(**(parts | changes))


def plan(spec: SessionSpec, investigated: Campaign) -> SessionPlan:
    """The plan of a session that follows an earlier one."""
    request = FrozenRequest(
        name="r", messages=[Message(role="user", content="x")], max_tokens=1, temperature=0.0, timeout_s=1.0
    )
    return SessionPlan(
        stage=StageName.MINIMAL_START,
        spec=spec,
        campaign=investigated,
        arms=plan_arms(spec, investigated.base),
        request=request,
        request_id=request.request_id("m"),
        release="0.33.0",
        baseline="earlier",
    )


def test_two_changes_are_refused_by_name() -> None:
    """A session file with two changes names both."""
    with pytest.raises(SpecError) as refused:
        load_model(TrialSpec, {"change": {"prefix_caching": True, "max_num_seqs": 4}}, source="s.yaml")
    assert "2 changes in one session: prefix_caching, max_num_seqs" in refused.value.what


def test_a_misspelt_key_gets_the_nearest_one() -> None:
    """`trails` means `trials`."""
    with pytest.raises(SpecError) as refused:
        load_model(TrialSpec, {"trails": 3}, source="s.yaml")
    assert "unknown key trails" in refused.value.what
    assert refused.value.expected == "trials"


def test_arms_take_turns() -> None:
    """Two arms and two trials each give four starts that alternate."""
    two = TrialSpec(change={"prefix_caching": [False, True]}, trials=2)
    arms = [arm.name for _, arm in plan(two, campaign()).trials()]
    assert ["prefix_caching=false", "prefix_caching=true"] * 2 == arms


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": [1, 1]}, "s.yaml: change.seed: a value stands twice: seed=1"),
        ({"prefix_caching": False}, "s.yaml: change.prefix_caching: this changes nothing"),
        ({"seed": "x"}, "s.yaml: change.seed: seed cannot be 'x'"),
        ({"sede": 1}, "s.yaml: change.sede: 'sede' is not an engine setting"),
    ],
)
def test_a_change_that_is_none_is_refused_by_file_and_key(change: dict[str, Any], said: str) -> None:
    """A value twice, the value of the base, a wrong value and no setting: each names where it stands."""
    with pytest.raises(SpecError) as refused:
        plan_arms(TrialSpec(change=change), BASE, source="s.yaml")
    assert said == refused.value.what


def test_no_difference_is_a_repetition() -> None:
    """The same base again differs in nothing."""
    assert [] == check_one_variable(plan(TrialSpec(), campaign()), campaign().identity(), BASE.flat())


def test_one_difference_is_valid() -> None:
    """The changed setting is the one difference."""
    changed = plan(TrialSpec(change={"prefix_caching": True}), campaign())
    found = check_one_variable(changed, campaign().identity(), BASE.flat())
    assert ["prefix_caching"] == [d.key for d in found]


def test_two_differences_are_refused_with_both_names() -> None:
    """A change on top of an edited base is two variables (R-29)."""
    edited = campaign(base=BASE.with_change("max_model_len", 8192))
    with pytest.raises(SpecError) as refused:
        check_one_variable(plan(TrialSpec(change={"prefix_caching": True}), edited), edited.identity(), BASE.flat())
    assert "max_model_len: 8192" in refused.value.evidence or "max_model_len: 16384 → 8192" in refused.value.evidence
    assert "prefix_caching" in refused.value.evidence


def test_a_group_counts_once() -> None:
    """Tensor and pipeline parallelism move together as topology."""
    moved = campaign(base=BASE.with_change("tensor_parallel", 16).with_change("pipeline_parallel", 2))
    found = check_one_variable(plan(TrialSpec(), moved), moved.identity(), BASE.flat())
    assert {"tensor_parallel", "pipeline_parallel"} == {d.key for d in found}


def test_a_new_image_with_a_new_setting_is_refused() -> None:
    """Another release of the engine is a change like any other."""
    other = campaign(engine=EnginePlace(kind=EngineKind.LOCAL, version="0.34.0"))
    changed = plan(TrialSpec(change={"max_num_seqs": 4}), other)
    with pytest.raises(SpecError) as refused:
        check_one_variable(changed, campaign().identity(), BASE.flat())
    assert "engine.version" in refused.value.evidence


@pytest.mark.parametrize("name", ["30_minimal_start.yaml", "params/x/30_second.yaml", "30_minimal_start"])
def test_the_number_says_the_stage(name: str) -> None:
    """A file's number is its stage."""
    assert StageName.MINIMAL_START is stage_of(name)


def test_no_number_no_stage() -> None:
    """Other names are refused with the list of stages."""
    with pytest.raises(SpecError):
        stage_of("campaign.yaml")
