"""How a run of a notebook ended: the value that the engine hands up."""

from __future__ import annotations

from dataclasses import dataclass

from k3lib.spec.vocabulary import SessionState


@dataclass(frozen=True)
class Outcome:
    """
    How a run of a notebook ended, and where.

    Args:
        state: CLOSED, or FAILED (a cell raised, or no record was written), TIMED_OUT (a cell ran too long),
            INTERRUPTED (Ctrl-C or SIGTERM), KILLED (the kernel died).
        reason: One line for a reader; None when closed.
        cell_index: Position of the cell that was running, from 0, in the notebook as executed; None when closed.
        cell_id: Its id, or None.
        error_name: Name of the exception, or None.
        error_value: Its message, or None.
        traceback: Its lines, with ANSI colours; empty if there is none.
    """

    state: SessionState
    reason: str | None = None
    cell_index: int | None = None
    cell_id: str | None = None
    error_name: str | None = None
    error_value: str | None = None
    traceback: tuple[str, ...] = ()

    @property
    def closed(self) -> bool:
        """True if the notebook ran to its end and wrote its record."""
        return self.state is SessionState.CLOSED


CLOSED = Outcome(SessionState.CLOSED)
