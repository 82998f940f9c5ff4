"""The tables of a session: starts, journal, requests, effective state, checklist, verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from k3lib.judge.checklist import ChecklistItem
from k3lib.judge.request import read_probe
from k3lib.judge.trial import TrialRecord
from k3lib.judge.verdict import Verdict
from k3lib.report.sentences import Language, render_step, render_verdict
from k3lib.report.tables import Table
from k3lib.spec.vocabulary import Probe
from k3lib.stats.measurement import Measurement
from k3lib.units import format_seconds

_DONE = {True: "done", False: "not done", None: "not known here"}


def table_trials(trials: Sequence[TrialRecord], timed: bool = True) -> Table:
    """A row per fresh start: how far it got and how it ended; no times where the clock is a model's."""
    show = format_seconds if timed else _untimed
    rows = []
    for t in trials:
        found = "void" if t.void else t.failed_phase.value if t.failed_phase else "success"
        last = t.timeline.last.value if t.timeline and t.timeline.last else None
        ending = t.launch.ending.value if t.launch.ending else None
        rows.append([t.number, t.arm, found, show(t.launch.ready_s), last, ending, t.void or t.failure])
    return Table(
        ["trial", "arm", "result", "ready after", "last milestone", "engine ended", "why"], rows, "Fresh starts"
    )


def table_journal(trials: Sequence[TrialRecord], language: Language = "en") -> Table:
    """The log read in its order: the first step that is missing is where to look (R-24)."""
    read = [t for t in trials if t.journal]
    if not read:
        return Table(["step"], [], "No log was read")
    rows = []
    for step in read[0].journal:
        reached = [t for t in read for s in t.journal if s.number == step.number and s.reached]
        line = next((s.line for t in read for s in t.journal if s.number == step.number and s.line), None)
        rows.append(
            [
                step.number,
                getattr(step.step, language),
                f"{len(reached)}/{len(read)}",
                line,
                getattr(step.if_missing, language),
                getattr(step.forbidden, language),
            ]
        )
    columns = ["#", "what must appear", "reached", "first line", "if it stops here", "do not conclude"]
    return Table(columns, rows, "The journal in its order")


def table_effective(trials: Sequence[TrialRecord]) -> Table:
    """Intent against what runs, a row per field; differing trials are named."""
    rows: dict[tuple[Any, ...], list[int]] = {}
    for t in trials:
        for f in t.effective:
            untold = "unknown" if f.intended is not None else "the engine's own"
            agrees = {True: "agrees", False: "MISMATCH", None: untold}[f.agrees]
            key = (f.name, _said(f.intended), _said(f.effective), agrees, f.source, f.reason)
            rows.setdefault(key, []).append(t.number)
    shown = [
        [name, intended, effective, agrees, source or reason, _which(numbers, len(trials))]
        for (name, intended, effective, agrees, source, reason), numbers in rows.items()
    ]
    return Table(["setting", "intended", "runs", "reading", "source or reason", "trials"], shown, "Effective state")


def table_requests(trials: Sequence[TrialRecord], timed: bool = True) -> Table:
    """A row per frozen request and warm-up; without times where the clock is a model's."""
    show = format_seconds if timed else _untimed
    rows = []
    for t in trials:
        for r in t.requests:
            if r.probe not in (Probe.FROZEN, Probe.WARM_UP):
                continue
            itl = sorted(r.itl_s)
            rows.append(
                [
                    t.number,
                    r.probe.value,
                    r.status,
                    show(r.ttft_s),
                    show(itl[len(itl) // 2]) if itl else None,
                    show(r.total_s),
                    r.prompt_tokens,
                    r.completion_tokens,
                    r.cached_tokens,
                    r.finish_reason,
                    r.error,
                ]
            )
    columns = [
        "trial",
        "request",
        "HTTP",
        "TTFT",
        "ITL p50",
        "total",
        "prompt (tokens)",
        "output (tokens)",
        "cached (tokens)",
    ]
    return Table([*columns, "finish reason", "error"], rows, "Requests, one at a time")


def table_probes(trials: Sequence[TrialRecord]) -> Table:
    """A row per functional probe (R-28)."""
    rows = [[t.number, p.probe.value, *read_probe(p)] for t in trials for p in t.probes]
    return Table(["trial", "probe", "finding", "what was seen"], rows, "The four checks of a proof of concept")


def table_checklist(items: Sequence[ChecklistItem], language: Language = "en") -> Table:
    """The seven steps of a proof of concept, computed (R-27)."""
    rows = [[i.number, i.key.replace("-", " "), _DONE[i.done], render_step(i, language)] for i in items]
    return Table(["#", "step", "state", "computed from this session"], rows, "Seven steps of a proof of concept")


def table_verdicts(verdicts: Sequence[Verdict], language: Language = "en") -> Table:
    """What the rules found, and what comes next."""
    rows = []
    for v in verdicts:
        sentence, next_step = render_verdict(v, language)
        where = ", ".join(f"{e.file}:{e.line}" if e.line else e.file for e in v.evidence[:2])
        rows.append([v.outcome.value, v.rule, sentence, next_step or None, where or None])
    return Table(["outcome", "rule", "finding", "next", "evidence"], rows, "Verdict")


def table_measurements(measurements: Sequence[Measurement]) -> Table:
    """Numbers with unit, n and interval; an absent one says why."""
    rows = [[m.key, m.value, m.unit, m.n, m.low, m.high, m.method or m.reason] for m in measurements]
    return Table(
        ["measurement", "value", "unit", "n", "low (95 %)", "high (95 %)", "method or reason"], rows, "Measurements"
    )


def _said(value: object) -> str | None:
    return None if value is None else str(value)


def _which(numbers: list[int], trials: int) -> str:
    return "all" if len(numbers) == trials else ", ".join(map(str, numbers))


def _untimed(_: float | None) -> str:
    return "modelled"
