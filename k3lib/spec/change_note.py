"""One line of a campaign's change journal: what a person changed on the machine, and the way back."""

from __future__ import annotations

from k3lib.spec.model import Fact


class ChangeNote(Fact):
    """
    A change that a person made or is about to make.

    Args:
        at: Wall clock, ISO 8601 with offset.
        who: Who made it.
        what: One line, `driver upgraded to 580.95`.
        undo: How to go back, or None if nobody said.
        irreversible: It cannot be undone: flagged before it is made.

    >>> ChangeNote(at="2026-11-30T08:00:00+00:00", who="ana", what="driver upgraded", undo="apt install …").way_back
    'known'
    """

    at: str
    who: str
    what: str
    undo: str | None = None
    irreversible: bool = False

    @property
    def way_back(self) -> str:
        """`known`, `unknown` or `none`."""
        if self.irreversible:
            return "none"
        return "known" if self.undo else "unknown"
