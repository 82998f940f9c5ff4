"""Gates: no step before the one before it has passed."""

from __future__ import annotations

import pytest

from k3lib.judge.gates import SessionSummary, find_last_stable, judge_gate
from k3lib.spec.vocabulary import Outcome, SessionState

CALENDAR = ["30_minimal_start", "40_single_request"]


def ran(name: str, stage: str, outcome: Outcome | None, state: SessionState = SessionState.CLOSED) -> SessionSummary:
    """An earlier session."""
    return SessionSummary(name=name, stage=stage, state=state, outcome=outcome, comparable=True)


def test_the_first_stage_is_open() -> None:
    """Nothing stands before the first stage of the calendar."""
    assert judge_gate("30_minimal_start", CALENDAR, []).open


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.WARN])
def test_pass_and_warn_open(outcome: Outcome) -> None:
    """A stage that passed, with or without a warning, opens the next."""
    assert judge_gate("40_single_request", CALENDAR, [ran("a", "30_minimal_start", outcome)]).open


@pytest.mark.parametrize(
    "earlier",
    [
        [],
        [ran("a", "30_minimal_start", Outcome.FAIL)],
        [ran("a", "30_minimal_start", Outcome.SKIP)],
        [ran("a", "30_minimal_start", None, SessionState.KILLED)],
        [ran("a", "30_minimal_start", Outcome.PASS, SessionState.INTERRUPTED)],
        [ran("a", "30_minimal_start", Outcome.PASS), ran("b", "30_minimal_start", Outcome.FAIL)],
    ],
)
def test_anything_else_closes(earlier: list[SessionSummary]) -> None:
    """No session, a failed, an unknown, a killed or an interrupted one, or a newer failure: closed."""
    gate = judge_gate("40_single_request", CALENDAR, earlier)
    assert not gate.open
    assert "30_minimal_start" in gate.reason


def test_a_calendar_may_begin_later() -> None:
    """Up to the stage that the campaign names nothing need have run; a failure closes the gate all the same."""
    longer = ["20_compatibility", *CALENDAR]
    begun = judge_gate("30_minimal_start", longer, [], starts_at="30_minimal_start")
    assert begun.open
    assert "may begin at 30_minimal_start" in begun.reason
    assert not judge_gate("40_single_request", longer, [], starts_at="30_minimal_start").open
    failed = [ran("a", "20_compatibility", Outcome.FAIL)]
    assert not judge_gate("30_minimal_start", longer, failed, starts_at="30_minimal_start").open


def test_opened_by_hand_is_recorded() -> None:
    """A reason opens a closed gate, and stays in the gate; an open gate records none."""
    assert "demo" == judge_gate("40_single_request", CALENDAR, [], "demo").accepted
    opened = judge_gate("40_single_request", CALENDAR, [ran("a", "30_minimal_start", Outcome.PASS)], "demo")
    assert opened.accepted is None


def test_last_stable_skips_failures() -> None:
    """The next session is compared with the latest one that passed."""
    earlier = [ran("a", "30_minimal_start", Outcome.PASS), ran("b", "40_single_request", Outcome.FAIL)]
    stable = find_last_stable(earlier)
    assert stable is not None
    assert "a" == stable.name
