"""The pretend machine in stage 20: the real collector looks at it, and a scenario changes what is judged."""

from __future__ import annotations

from datetime import date

import pytest

from k3lib.judge.compatibility import judge_constraints
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.knowledge.hardware import find_machine
from k3lib.spec.settings import EngineSettings
from k3lib.spec.vocabulary import EngineKind, Objective
from k3lib.workbook.pretend import look_at_pretend_machine


def judge(machine: str, scenario: str, seed: int = 0) -> dict[str, str]:
    """Rule to outcome and case, on this machine under this scenario."""
    variables = {
        "K3_REHEARSAL_MACHINE": machine,
        "K3_REHEARSAL_SCENARIO": scenario,
        "K3_REHEARSAL_SEED": str(seed),
    }
    places = look_at_pretend_machine(find_machine(machine), variables)
    facts = CompatibilityFacts(
        kind=EngineKind.REHEARSAL,
        objective=Objective.POC,
        model="moonshotai/Kimi-K3",
        release="0.33.0+rehearsal",
        settings=EngineSettings(tensor_parallel=8),
        image="vllm/vllm-openai:kimi-k3",
        hosts=[place for place in places if place.place.kind == "host"],
        containers=[place for place in places if place.place.kind == "container"],
        modelled=machine,
        today=date(2026, 11, 30),
        recipe_max_age_days=14,
    )
    return {v.rule.removeprefix("compatibility."): f"{v.outcome.value} {v.case}" for v in judge_constraints(facts)}


@pytest.mark.parametrize(
    ("scenario", "rule", "finding"),
    [
        ("healthy", "host_container", "PASS same"),
        ("healthy", "driver_cuda", "PASS supports"),
        ("driver-too-old", "driver_branch", "FAIL old"),
        ("driver-half-upgraded", "driver_loaded", "WARN waits"),
        ("no-gpus", "host_container", "FAIL none"),
    ],
)
def test_a_scenario_shows_in_what_is_judged(scenario: str, rule: str, finding: str) -> None:
    """What the scenario changes about the machine is found, and marked as modelled."""
    found = judge("8xB300", scenario)
    assert finding == found[rule]
    assert "WARN modelled" == found["look"]
    assert "NOT_APPLICABLE modelled" == found["shared_memory"]


def test_two_trays_are_two_hosts_of_another_processor() -> None:
    """The profile's hosts, not this computer's."""
    found = judge("8xGB300", "healthy")
    assert "FAIL needs-more" == found["hosts"]
    assert "PASS runs" == found["image_architecture"]


def test_a_profile_without_tools_leaves_only_its_gpus() -> None:
    """AMD's tools are not played; the caller falls back on the profile."""
    assert [] == look_at_pretend_machine(find_machine("8xMI355X"), {"K3_REHEARSAL_MACHINE": "8xMI355X"})
