"""A record as text for a terminal."""

from __future__ import annotations

from collections import Counter

from k3lib.record.paths import SessionPaths
from k3lib.record.schema import Record
from k3lib.report.scene import table_items
from k3lib.report.session import table_trials
from k3lib.spec.vocabulary import Provenance
from k3lib.workbook.show import BANNERS


def render_record_text(record: Record, paths: SessionPaths, manifest: list[str]) -> str:
    """
    A session in one screen: what it was, how it ended, what the rules found, where to look.

    Args:
        record: What it found.
        paths: Where its files are.
        manifest: What differs from MANIFEST.sha256; empty is right.
    """
    info = record.session
    ended = info.state.value + (f": {info.reason}" if info.reason else "")
    lines = [
        BANNERS[info.provenance],
        f"{info.name}  {record.outcome.value}  ({ended})",
        f"campaign {info.campaign} · stage {info.stage} · started {info.started_at}",
        "",
        *_what_was_seen(record),
        *_verdict_lines(record),
        "",
        *[f"  {text}" for text in _where(paths)],
        f"  manifest: {'as written' if not manifest else '; '.join(manifest[:5])}",
    ]
    return "\n".join(lines)


def _what_was_seen(record: Record) -> list[str]:
    """The trials, or the eight items of a scene; a session may have neither."""
    seen = [table_items(record.scene)] if record.scene else []
    if record.trials:
        seen.append(table_trials(record.trials, timed=record.session.provenance is not Provenance.REHEARSAL))
    return [text for table in seen for text in (str(table), "")]


def _verdict_lines(record: Record) -> list[str]:
    said = Counter((verdict.outcome, verdict.sentence) for verdict in record.verdicts)
    lines = []
    for verdict in record.verdicts:
        times = said.pop((verdict.outcome, verdict.sentence), 0)  # rules that say the same are said once
        if not times:
            continue
        lines.append(f"{verdict.outcome.value:<15} {verdict.sentence}" + (f" ({times} rules)" if times > 1 else ""))
        if verdict.next and verdict.outcome.value in ("FAIL", "WARN"):
            lines.append(f"{'':<15} next: {verdict.next}")
    return lines


def _where(paths: SessionPaths) -> list[str]:
    wanted = [paths.html, paths.notebook, paths.record, *[trial.log for _, trial in paths.trials()]]
    return [str(path) for path in wanted if path.exists()]
