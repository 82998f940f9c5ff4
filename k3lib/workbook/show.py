"""What a notebook shows around its tables: the head, the live line, the closing."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from html import escape
from types import TracebackType
from typing import Any, Self

from k3lib.judge.gates import Gate
from k3lib.notebook.document import RECORD_MIME
from k3lib.record.paths import SessionPaths
from k3lib.report.tables import Table
from k3lib.spec.session import SessionPlan
from k3lib.spec.vocabulary import Provenance
from k3lib.units import format_seconds

BANNERS = {
    Provenance.REHEARSAL: "REHEARSAL — a model of an engine. Nothing here was measured on Kimi K3 or on a GPU.",
    Provenance.ENGINE: "Real engine — everything here was measured on the engine named below.",
    Provenance.LOGS: "Saved logs — nothing was started; what the files do not hold is unknown.",
}


@dataclass(frozen=True)
class Head:
    """The first thing below the parameters: what this session is."""

    plan: SessionPlan
    paths: SessionPaths
    gate: Gate
    fingerprint: str
    provenance: Provenance

    def _table(self) -> Table:
        change = self.plan.change
        changed = ", ".join(f"{key} = {value}" for key, value in change.items()) or "nothing: a repetition of the base"
        trials = len(self.plan.trials())
        against = self.plan.baseline or "nothing yet: this is the first stable base"
        rows = [
            ["campaign", f"{self.plan.campaign.name} ({self.plan.campaign.objective.value})"],
            ["session", self.paths.name],
            ["the one change", changed],
            ["compared with", against],
            ["gate", self.gate.reason + (f" — opened by hand: {self.gate.accepted}" if self.gate.accepted else "")],
            *([["trials", f"{trials} fresh starts over {len(self.plan.arms)} arm(s)"]] if trials else []),
            ["where", self.fingerprint],
            ["frozen request", f"{self.plan.request.name} {self.plan.request_id}"],
        ]
        return Table(["", "this session"], rows)

    def _repr_html_(self) -> str:
        colour = {"rehearsal": "#7a4b00", "engine": "#17693a", "logs": "#4a4a4a"}[self.provenance.value]
        banner = (
            f'<p style="border-left:.5em solid {colour};padding:.4em .8em;font-weight:600;color:{colour}">'
            f"{escape(BANNERS[self.provenance])}</p>"
        )
        return banner + self._table()._repr_html_()

    def __repr__(self) -> str:
        return f"{BANNERS[self.provenance]}\n{self._table()}"


@dataclass(frozen=True)
class Closing:
    """The last output of a notebook: the outcome for people, the record for programs."""

    record: dict[str, Any]
    paths: SessionPaths
    opens: str

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        text = repr(self)
        shown = "<br>".join(escape(line) for line in text.splitlines())
        return {"text/plain": text, "text/html": f"<p>{shown}</p>", RECORD_MIME: self.record}

    def __repr__(self) -> str:
        return f"Outcome of the stage: {self.record['outcome']}\n{self.opens}\nRecord: {self.paths.record}"


class LiveLine:
    """
    One line that says where a session stands, redrawn in place; silent in batch, where the runner shows it.

    Args:
        session: The session's name.
        trials: How many trials it has.
    """

    def __init__(self, session: str, trials: int) -> None:
        self._session, self._trials, self._began = session, trials, time.monotonic()
        self._handle: Any = None
        self._silent = os.environ.get("K3_BATCH") == "1" or "ipykernel" not in sys.modules

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            elapsed = format_seconds(time.monotonic() - self._began)
            self._draw(f"{self._session}: {'stopped' if value else 'done'} after {elapsed}")

    def show(self, event: dict[str, object]) -> None:
        """One more event of the session."""
        if not self._silent:
            self._draw(f"{self._session}: {describe_event(event, self._trials)}")

    def _draw(self, text: str) -> None:
        import IPython.display as notebook

        html = {"text/plain": text, "text/html": f"<p aria-live='polite'>{escape(text)}</p>"}
        if self._handle is None:
            self._handle = notebook.DisplayHandle()  # type: ignore[no-untyped-call]
            self._handle.display(html, raw=True)
        else:
            self._handle.update(html, raw=True)


def describe_event(event: dict[str, object], trials: int) -> str:
    """
    An event in one line.

    >>> describe_event({"trial": 2, "event": "starting", "phase": "weights", "elapsed_s": 12.34}, 5)
    'trial 2/5 · starting · weights · 12.3 s'
    """
    parts = [f"trial {event['trial']}/{trials}", str(event["event"])]
    if event.get("phase"):
        parts.append(str(event["phase"]))
    if isinstance(elapsed := event.get("elapsed_s"), float):
        parts.append(format_seconds(elapsed))
    return " · ".join(parts)
