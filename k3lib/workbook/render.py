"""The pages of a session and of its campaign, and the checksums, all rebuilt from the folder."""

from __future__ import annotations

from pathlib import Path

from k3lib.errors import RecordError
from k3lib.notebook.html import render_html
from k3lib.record.files import write_atomic
from k3lib.record.manifest import write_manifest
from k3lib.record.paths import SessionPaths
from k3lib.record.schema import Record
from k3lib.record.sessions import list_sessions, read_record
from k3lib.report.index import IndexRow, render_index
from k3lib.spec.vocabulary import Outcome, SessionState
from k3lib.workbook.show import BANNERS


def render_session(paths: SessionPaths, record: Record) -> None:
    """
    The notebook as one page, the manifest, and the campaign's index.

    Args:
        paths: The session's folder.
        record: What it found.
    """
    info = record.session
    if paths.notebook.exists():
        title = f"{info.campaign} · {info.stage} · {record.outcome.value}"
        render_html(
            paths.notebook,
            paths.html,
            title=title,
            banner=BANNERS[info.provenance],
            provenance=info.provenance,
            findings=find_decisive(record),
        )
    write_manifest(paths)
    write_index(paths.folder.parent)


def find_decisive(record: Record) -> list[tuple[str, str]]:
    """
    What decides, for whoever reads only the first lines: a broken ending, then the rules behind the outcome.

    Args:
        record: What a session found.

    Returns:
        Outcome and sentence, at most five.
    """
    info = record.session
    ending = [] if info.state is SessionState.CLOSED else [(info.state.value, info.reason or "it did not end in order")]
    weighty = [v for v in record.verdicts if v.outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.WARN)]
    decisive = weighty or [v for v in record.verdicts if v.outcome is record.outcome][:1]
    return [*ending, *[(v.outcome.value, v.sentence) for v in decisive]][:5]


def write_index(campaign: Path) -> Path:
    """The campaign's page: a row per session, oldest first."""
    rows = []
    for paths in list_sessions(campaign):
        try:
            record = read_record(paths)
        except RecordError as problem:
            rows.append(IndexRow(paths.name, "", "no record", "", problem.what, None))
            continue
        changed = ", ".join(f"{d.key} → {d.theirs}" for d in record.plan.differences) or "—"
        [(outcome, finding), *_] = find_decisive(record) or [(record.outcome.value, "")]
        link = f"{paths.name}/notebook.html" if paths.html.exists() else None
        rows.append(
            IndexRow(
                paths.name,
                record.session.stage,
                outcome if record.session.state is not SessionState.CLOSED else record.outcome.value,
                changed,
                finding,
                link,
            )
        )
    page = campaign / "index.html"
    provenance = {read_record(p).session.provenance for p in list_sessions(campaign) if p.record.exists()}
    write_atomic(page, render_index(campaign.name, [BANNERS[p] for p in sorted(provenance)], rows))
    return page
