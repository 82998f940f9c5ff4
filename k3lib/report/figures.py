"""Figures of a session. Each is a picture with a text that says what it shows."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from k3lib.judge.trial import TrialRecord
from k3lib.report.style import FAILURE_COLOUR, PHASE_COLOURS, PHASE_HATCHES, set_style
from k3lib.report.tables import Table
from k3lib.spec.vocabulary import Phase, Provenance
from k3lib.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """
    A figure and the text that stands for it.

    Args:
        figure: The matplotlib figure, for one's own changes.
        alt: What it shows, for readers who cannot see it.
    """

    figure: Figure
    alt: str

    def _repr_html_(self) -> str:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=120, bbox_inches="tight")
        data = base64.b64encode(buffer.getvalue()).decode()
        return f'<img style="max-width:100%" alt="{escape(self.alt)}" src="data:image/png;base64,{data}">'

    def __repr__(self) -> str:
        return self.alt


def draw_phases(trials: list[TrialRecord], provenance: Provenance) -> Picture | Table:
    """
    How long each phase of each start took: a bar a trial, from the first line of the log to ready or to the end.

    Args:
        trials: In order.
        provenance: Said in the title when it is a rehearsal.

    Returns:
        The picture; a table of reasons where no log carries times.
    """
    drawn = [t for t in trials if t.timeline and any(s.duration_s is not None for s in t.timeline.phases)]
    if not drawn:
        rows = [
            [t.number, (t.timeline.phases[0].reason if t.timeline and t.timeline.phases else t.failure)] for t in trials
        ]
        return Table(["trial", "why no bar is drawn"], rows, "No log carries times")
    set_style()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.42 * len(drawn)), layout="constrained")
    axes = figure.subplots()
    ends = [_draw_trial(axes, row, trial) for row, trial in enumerate(drawn)]
    rehearsed = provenance is Provenance.REHEARSAL
    axes.set_yticks(range(len(drawn)), [f"trial {t.number}" + ("" if t.arm == "base" else f"\n{t.arm}") for t in drawn])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, max(ends) * 1.18 or 1)
    axes.set_xlabel(
        "seconds since the first line of the log" + (" (modelled clock of the rehearsal)" if rehearsed else "")
    )
    axes.set_title("REHEARSAL · phases of each start" if rehearsed else "Phases of each start")
    _draw_legend(axes, drawn)
    return Picture(figure, _describe(drawn, rehearsed))


def _draw_trial(axes: Axes, row: int, trial: TrialRecord) -> float:
    """One bar; returns where it ends, seconds."""
    assert trial.timeline is not None
    left = 0.0
    for span in trial.timeline.phases:
        if span.duration_s is None or span.phase is Phase.SERVING:
            continue
        axes.barh(
            row,
            span.duration_s,
            left=left,
            height=0.62,
            color=PHASE_COLOURS[span.phase],
            hatch=PHASE_HATCHES[span.phase],
            edgecolor="white",
            linewidth=0.6,
        )
        left += span.duration_s
    if trial.failed_phase:
        axes.text(
            left, row, f"  ✕ failed in {trial.failed_phase.value}", va="center", color=FAILURE_COLOUR, weight="bold"
        )
    else:
        axes.text(left, row, f"  ready after {format_seconds(left)}", va="center")
    return left


def _draw_legend(axes: Axes, trials: list[TrialRecord]) -> None:
    from matplotlib.patches import Patch

    seen = {s.phase for t in trials if t.timeline for s in t.timeline.phases if s.duration_s is not None}
    patches = [
        Patch(facecolor=PHASE_COLOURS[p], hatch=PHASE_HATCHES[p], edgecolor="white", label=p.value)
        for p in Phase
        if p in seen and p is not Phase.SERVING
    ]
    axes.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.45, -0.35), ncols=6, frameon=False)


def _describe(trials: list[TrialRecord], rehearsed: bool) -> str:
    parts = []
    for trial in trials:
        assert trial.timeline is not None
        spans = ", ".join(
            f"{s.phase.value} {format_seconds(s.duration_s)}"
            for s in trial.timeline.phases
            if s.duration_s is not None and s.phase is not Phase.SERVING
        )
        end = f"failed in {trial.failed_phase.value}" if trial.failed_phase else "ready"
        parts.append(f"trial {trial.number}: {spans}, {end}")
    return ("Rehearsal. " if rehearsed else "") + "Phases of each start. " + "; ".join(parts) + "."
