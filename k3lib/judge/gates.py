"""The calendar's gates: which stage may run now, after which sessions, and against which of them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Outcome, SessionState

_OPENS = (Outcome.PASS, Outcome.WARN)


class SessionSummary(Fact):
    """
    What the calendar needs to know of an earlier session.

    Args:
        name: The session's name; names sort by time.
        stage: Its stage.
        state: How it ended.
        outcome: What its rules found, or None if it left no record.
        comparable: False if something changed during the run.
        reason: Why it did not close in order, or None.
        identity: Flat identity of its engine.
        settings: Flat settings of its last arm.
        starts: Whether it starts engines; one that only looks is no base to compare with.
    """

    name: str
    stage: str
    state: SessionState
    outcome: Outcome | None
    comparable: bool
    reason: str | None = None
    identity: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    starts: bool = True

    @property
    def stable(self) -> bool:
        """True if it closed in order and its stage passed."""
        return self.state is SessionState.CLOSED and self.outcome in _OPENS


class Gate(Fact):
    """
    Whether a stage may run, and why.

    Args:
        stage: The stage that asks.
        open: May it run?
        needs: The stage before it in this calendar, or None for the first.
        seen: The session that decided, or None if there is none.
        outcome: That session's outcome, or None.
        state: How that session ended, or None.
        accepted: The reason given for opening it by hand, or None.
        begins: The campaign lets its calendar begin here, and nothing has run before.
    """

    stage: str
    open: bool
    needs: str | None
    seen: str | None = None
    outcome: Outcome | None = None
    state: SessionState | None = None
    accepted: str | None = None
    begins: bool = False

    @property
    def reason(self) -> str:
        """One line on why the gate is open or closed."""
        if self.needs is None:
            return f"{self.stage} is the first stage of this calendar"
        if self.begins:
            return f"{self.needs} has not been run; this campaign may begin at {self.stage} (starts_at)"
        if self.seen is None:
            return f"{self.stage} needs {self.needs}, which no session of this campaign has run"
        cut_short = self.state not in (None, SessionState.CLOSED)
        ended = f"{self.state}" if cut_short else self.outcome.value if self.outcome else "no verdict"
        return f"{self.stage} needs {self.needs} to pass; its latest session {self.seen} ended with {ended}"


def judge_gate(
    stage: str,
    calendar: list[str],
    earlier: list[SessionSummary],
    accepted: str | None = None,
    starts_at: str = "",
) -> Gate:
    """
    Whether a stage may run: the stage before it in the calendar must have passed, in its latest session (R-18).

    Args:
        stage: The stage that wants to run.
        calendar: The campaign's stages in order; a stage that is not in it follows the last lower number.
        earlier: The campaign's sessions, oldest first.
        accepted: A reason for opening a closed gate by hand.
        starts_at: The latest stage that may run without any session of the stage before it.

    Returns:
        The gate, with the session that decided.
    """
    before = [name for name in sorted(set(calendar)) if name < stage]
    if not before:
        return Gate(stage=stage, open=True, needs=None)
    needs = before[-1]
    ran = [s for s in earlier if s.stage == needs]
    latest = ran[-1] if ran else None
    begins = latest is None and stage <= starts_at
    is_open = begins or (latest is not None and latest.stable)
    return Gate(
        stage=stage,
        open=is_open or bool(accepted),
        needs=needs,
        seen=latest.name if latest else None,
        outcome=latest.outcome if latest else None,
        state=latest.state if latest else None,
        accepted=accepted if accepted and not is_open else None,
        begins=begins,
    )


def find_last_stable(earlier: list[SessionSummary]) -> SessionSummary | None:
    """The session that the next one is compared with: the latest stable and comparable one that ran, or None."""
    stable = [s for s in earlier if s.stable and s.comparable and s.starts]
    return stable[-1] if stable else None
