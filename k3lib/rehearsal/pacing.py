"""
How late tokens leave: when each was due by the model, and when its bytes were handed to the kernel.

Only with K3_REHEARSAL_PACING=1, because a record per token has a price; `GET /rehearsal/pacing` tells, and begins anew.
"""

from __future__ import annotations

from array import array
from typing import Any


class Pacing:
    """The lateness of every token since it was last told."""

    def __init__(self) -> None:
        self._late_s, self._first_s, self._last_s = array("d"), 0.0, 0.0

    def record(self, due_s: float, written_s: float) -> None:
        """
        One token.

        Args:
            due_s: When it should have left, on the event loop's clock.
            written_s: When it did.
        """
        if not self._late_s:
            self._first_s = due_s
        self._last_s = due_s
        self._late_s.append(written_s - due_s)

    def tell(self) -> dict[str, Any]:
        """
        Tokens, the span in which they were due, and quantiles of their lateness, seconds; None where there are none.

        >>> pacing = Pacing()
        >>> for late in (0.001, 0.002, 0.003):
        ...     pacing.record(10.0, 10.0 + late)
        >>> round(pacing.tell()["late_s"]["p50"], 6), pacing.tell()["late_s"]
        (0.002, None)
        """
        late = sorted(self._late_s)
        told: dict[str, Any] = {"tokens": len(late), "span_s": self._last_s - self._first_s, "late_s": None}
        if late:
            last = len(late) - 1
            told["late_s"] = {"p50": late[last // 2], "p99": late[round(0.99 * last)], "max": late[last]}
        self._late_s = array("d")
        return told
