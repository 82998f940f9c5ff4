"""The headline of a session answers the question that its stage was run for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from k3lib.judge.verdict import Verdict
from k3lib.record.schema import Record
from k3lib.spec.vocabulary import Outcome, SessionState, StageName
from k3lib.workbook.render import find_decisive


def record(stage: StageName, outcome: Outcome, **verdicts: Outcome) -> Record:
    """A closed session whose rules, with `__` for a dot, ended like this; each says its own name."""
    found = [
        Verdict(rule=name.replace("__", "."), sources=[], outcome=o, case="c", facts={}, sentence=name)
        for name, o in verdicts.items()
    ]
    plan, session = SimpleNamespace(stage=stage), SimpleNamespace(state=SessionState.CLOSED, reason=None)
    return cast(Record, SimpleNamespace(plan=plan, session=session, verdicts=found, outcome=outcome))


@pytest.mark.parametrize(
    ("stage", "said"),
    [(StageName.MINIMAL_START, "start__trials"), (StageName.SINGLE_REQUEST, "request__answers")],
)
def test_a_stage_that_passed_says_so_with_its_own_rule(stage: StageName, said: str) -> None:
    """That the engine starts does not answer whether the request comes back."""
    passed = record(stage, Outcome.PASS, start__trials=Outcome.PASS, request__answers=Outcome.PASS)
    assert [("PASS", said)] == find_decisive(passed)


def test_a_reproduced_failure_stands_before_the_failure() -> None:
    """What the session came for is read first; the failure itself stays below it."""
    seen = record(
        StageName.MINIMAL_START, Outcome.FAIL, start__trials=Outcome.FAIL, start__expected_failure=Outcome.PASS
    )
    assert [("PASS", "start__expected_failure"), ("FAIL", "start__trials")] == find_decisive(seen)


def test_a_failure_that_was_not_reproduced_comes_in_its_place() -> None:
    """Only a reproduced one is put first."""
    missed = record(
        StageName.MINIMAL_START, Outcome.FAIL, start__trials=Outcome.FAIL, start__expected_failure=Outcome.FAIL
    )
    assert ["start__trials", "start__expected_failure"] == [sentence for _, sentence in find_decisive(missed)]
