"""Machines against the recipe: what every constraint finds on each of them, and whether the gate may open."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from k3lib.judge.compatibility import CONSTRAINTS, judge_constraints, judge_path
from k3lib.judge.compatibility_acceptance import judge_acceptance, judge_health, judge_use
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.control import judge_control, judge_rebuild
from k3lib.judge.judgement import judge_stage
from k3lib.judge.verdict import Verdict
from k3lib.report.sentences import render_verdict
from k3lib.spec.strict_yaml import parse_yaml
from k3lib.spec.vocabulary import Outcome
from k3lib.units import GIB

CASES = sorted(path for path in (Path(__file__).parents[2] / "cases" / "compatibility").iterdir() if path.is_dir())


def read(case: Path, name: str) -> dict[str, Any]:
    """One YAML file of a case."""
    return parse_yaml((case / f"{name}.yaml").read_text("utf-8"), f"{case.name}/{name}.yaml")


@cache
def machine(case: Path) -> CompatibilityFacts:
    """The facts of a case; a number of like GPUs is written once."""
    facts = read(case, "machine")
    for place in [*facts.get("hosts", []), *facts.get("containers", [])]:
        place |= {"taken_at": "2026-08-26T09:00:00+00:00", "took_s": 4.0}
        if isinstance(place.get("gpus"), dict):
            gpu = dict(place["gpus"])
            count, size = gpu.pop("n"), gpu.pop("memory_gib")
            place["gpus"] = [{"index": i, "memory_total_bytes": round(size * GIB), **gpu} for i in range(count)]
    return CompatibilityFacts.model_validate(facts)


def short(verdict: Verdict) -> str:
    """The rule's name without its room."""
    return verdict.rule.removeprefix("compatibility.")


def all_rules(facts: CompatibilityFacts) -> list[Verdict]:
    """Everything that stage 20 judges."""
    more = [judge_path, judge_control, judge_rebuild, judge_health, judge_acceptance, judge_use]
    return [*judge_constraints(facts), *(rule(facts) for rule in more)]


def test_there_are_enough_machines() -> None:
    """An empty corpus proves nothing."""
    assert len(CASES) >= 25


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_every_constraint_finds_what_the_case_says(case: Path) -> None:
    """Everything but a pass is written down; a rule that is not there must pass."""
    expected = read(case, "expected")
    verdicts = judge_constraints(machine(case))
    wanted = dict(expected["found"])
    if "passes" in expected:
        silent = [short(v) for v in verdicts if short(v) not in expected["passes"]]
        assert sorted(expected["passes"]) == sorted(short(v) for v in verdicts if v.outcome is Outcome.PASS)
    else:
        silent = expected["not_applicable"]
    loud = (Outcome.FAIL, Outcome.WARN, Outcome.SKIP, Outcome.ERROR)
    assert wanted == {short(v): f"{v.outcome.value} {v.case}" for v in verdicts if v.outcome in loud}
    assert sorted(silent) == sorted(short(v) for v in verdicts if v.outcome is Outcome.NOT_APPLICABLE)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_the_stage_ends_as_the_case_says(case: Path) -> None:
    """A failure closes the gate, missing evidence too, a warning and what cannot exist do not."""
    assert Outcome(read(case, "expected")["stage"]) is judge_stage(all_rules(machine(case)))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_every_finding_can_be_said_in_both_languages(case: Path) -> None:
    """No sentence has a hole, and French is not English."""
    for verdict in all_rules(machine(case)):
        english, french = render_verdict(verdict, "en"), render_verdict(verdict, "fr")
        assert english[0]
        assert english[0] != french[0], verdict.rule
        assert bool(english[1]) == bool(french[1])


def test_every_constraint_passes_somewhere_and_does_not_elsewhere() -> None:
    """A rule that always says the same is no rule."""
    seen: dict[str, set[Outcome]] = {}
    for case in CASES:
        for verdict in judge_constraints(machine(case)):
            seen.setdefault(short(verdict), set()).add(verdict.outcome)
    assert len(CONSTRAINTS) == len(seen)
    assert [] == [name for name, outcomes in seen.items() if len(outcomes) < 2]
