"""What the team may change: six answers, what they offer and forbid, and what a dossier already says."""

from __future__ import annotations

import itertools
from datetime import date
from typing import Any

import pytest

from k3lib.judge.compatibility import judge_constraints
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.compatibility_intent import resolve_control
from k3lib.judge.control import DOSSIER, QUESTIONS, compile_dossier, judge_control, judge_rebuild
from k3lib.report.sentences import render_verdict
from k3lib.spec.accelerators import Driver, Gpu
from k3lib.spec.campaign import Control
from k3lib.spec.settings import EngineSettings
from k3lib.spec.snapshot import Host, Place, Snapshot
from k3lib.spec.vocabulary import EngineKind, HostLink, Objective, Outcome
from k3lib.units import GIB

ALL = dict.fromkeys(QUESTIONS, True)


def facts(
    control: dict[str, Any] | None = None, driver: str | None = "595.58.03", **changes: Any
) -> CompatibilityFacts:
    """Eight B300 under this driver, and this control vector."""
    cuda = {"595.58.03": "13.3", "575.57.08": "12.9"}.get(driver or "")
    gpu = {"vendor": "nvidia", "name": "NVIDIA B300", "memory_total_bytes": 268 * GIB, "capability": "10.3"}
    host = Snapshot(
        taken_at="2026-08-26T09:00:00+00:00",
        took_s=1.0,
        place=Place(kind="host"),
        host=Host(name="n1", machine="x86_64"),
        drivers=[Driver(vendor="nvidia", loaded=driver, cuda=cuda)] if driver else [],
        gpus=[Gpu(index=i, **gpu) for i in range(8)],
    )
    fields: dict[str, Any] = {
        "kind": EngineKind.DOCKER,
        "objective": Objective.PLATFORM,
        "model": "moonshotai/Kimi-K3",
        "release": "0.33.0",
        "settings": EngineSettings(tensor_parallel=8),
        "image": "vllm/vllm-openai:kimi-k3",
        "hosts": [host],
        "today": date(2026, 8, 26),
        "recipe_max_age_days": 14,
        "control": Control(**(control or {})),
    }
    return CompatibilityFacts(**(fields | changes))


@pytest.mark.parametrize(
    ("control", "outcome", "case"),
    [
        ({}, "SKIP", "unknown"),
        (ALL, "PASS", "known"),
        (ALL | {"driver": None}, "SKIP", "unknown"),
        (ALL | {"driver": False}, "PASS", "known"),
        (ALL | {"network": False}, "PASS", "known"),
        ({"driver": False, "network": False}, "WARN", "dossier"),
        ({"replay": False}, "WARN", "no-replay"),
        (ALL | {"replay": False}, "WARN", "no-replay"),
        ({"driver": False, "network": False, "replay": False}, "WARN", "dossier-no-replay"),
    ],
)
def test_the_answers_decide_between_acting_and_a_dossier(control: dict[str, Any], outcome: str, case: str) -> None:
    """Neither driver nor network means a dossier; no replay means no verdict on tuning or extension (R-48, R-50)."""
    verdict = judge_control(facts(control))
    assert (outcome, case) == (verdict.outcome.value, verdict.case)
    assert all(render_verdict(verdict, language)[0] for language in ("en", "fr"))


def test_a_condition_goes_with_its_answer() -> None:
    """`yes, in six weeks` is a yes, and the six weeks are said."""
    control, conditions = resolve_control(Control(), dict.fromkeys(QUESTIONS, "yes") | {"driver": "Yes, in six weeks"})
    verdict = judge_control(facts(control.model_dump(), conditions=conditions))
    assert "driver yes (in six weeks)" in render_verdict(verdict)[0]


def test_the_answer_of_the_day_wins_over_the_campaign() -> None:
    """The campaign says what is known in general, the session what is true today; silence keeps the campaign's."""
    control, _ = resolve_control(Control(driver=True, image=True), {"driver": "no", "image": ""})
    assert (False, True) == (control.driver, control.image)


def test_the_vector_has_the_six_questions_in_order() -> None:
    """Driver first, replay last."""
    vector = judge_control(facts(ALL)).facts["vector"]
    assert ["driver", "image", "network", "all_to_all", "prefill_decode_split", "replay"] == list(vector)


@pytest.mark.parametrize(
    ("driver", "image", "network"), list(itertools.product((True, False, None), repeat=3)), ids=lambda value: str(value)
)
def test_a_rebuild_is_offered_only_to_who_holds_all_three(
    driver: bool | None, image: bool | None, network: bool | None
) -> None:
    """All three: a fallback. The image alone: risky. Anything else: withheld (R-51)."""
    verdict = judge_rebuild(facts({"driver": driver, "image": image, "network": network}, driver="575.57.08"))
    expected = "offered" if driver and image and network else "risky" if image else "withheld"
    assert (Outcome.WARN, expected) == (verdict.outcome, verdict.case)
    assert all(render_verdict(verdict, language)[1] for language in ("en", "fr"))


def test_nothing_is_to_be_rebuilt_where_the_driver_goes_with_the_image() -> None:
    """And where the driver is not known, that is what is missing."""
    assert "not-needed" == judge_rebuild(facts(ALL)).case
    blind = judge_rebuild(facts(ALL, driver=None))
    assert (Outcome.SKIP, "driver") == (blind.outcome, blind.facts["evidence"])


def test_a_dossier_confirms_refutes_or_leaves_open() -> None:
    """An old driver confirms the version, fitting memory refutes its want, and later stages tell the last three."""
    items = compile_dossier(judge_constraints(facts(driver="575.57.08", link=HostLink.RDMA)))
    status = {item.key: item.confirmed for item in items}
    assert list(DOSSIER) == list(status)
    assert (True, False) == (status["version-incompatible"], status["memory-insufficient"])
    assert [None, None, None] == list(status.values())[3:]
    assert ["driver_branch", "driver_cuda"] == items[0].rules


def test_a_dossier_refutes_nothing_on_missing_evidence() -> None:
    """One unanswered rule leaves its item open."""
    items = compile_dossier(judge_constraints(facts(driver=None)))
    assert items[0].confirmed is None


def test_a_dossier_has_nothing_to_say_of_a_network_that_is_not_used() -> None:
    """On one host no rule about the network applies: open, not refuted."""
    items = compile_dossier(judge_constraints(facts()))
    assert (None, []) == (items[2].confirmed, items[2].rules)
