"""The pages of a session and of its campaign, and the checksums, all rebuilt from the folder."""

from __future__ import annotations

from pathlib import Path

from k3lib.errors import BusyError, RecordError
from k3lib.notebook.html import render_html
from k3lib.record.files import write_atomic
from k3lib.record.manifest import write_manifest
from k3lib.record.paths import SessionPaths
from k3lib.record.schema import Record
from k3lib.record.sessions import list_sessions, read_info, read_record
from k3lib.report.index import IndexRow, render_index
from k3lib.spec.session import SessionPlan
from k3lib.spec.vocabulary import Outcome, SessionState, StageName
from k3lib.workbook.lifecycle import keep_record
from k3lib.workbook.show import BANNERS

_OWN_RULE = {
    StageName.SCENE: "scene.items",
    StageName.COMPATIBILITY: "compatibility.path",
    StageName.MINIMAL_START: "start.trials",
    StageName.SINGLE_REQUEST: "request.answers",
}
"""The rule that answers the question a stage was run for; its sentence speaks for a stage that passed."""


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


def rebuild_session(paths: SessionPaths) -> Record:
    """
    Record, page, manifest and index again, from a session's evidence.

    Args:
        paths: The session's folder.

    Returns:
        The record.

    Raises:
        BusyError: It still runs; its own runner writes all of them at its end.
        RecordError: The folder holds no intent, or cannot be written.
    """
    info = read_info(paths)
    if info.state is SessionState.RUNNING:
        raise BusyError(
            f"{paths.name} is still running",
            expected="a session that has ended",
            evidence=f"pid {info.pid}, started {info.started_at}",
            next="wait for its end, which makes the page; `k3 show` reads it meanwhile",
        )
    record = keep_record(paths)
    render_session(paths, record)
    return record


def find_decisive(record: Record) -> list[tuple[str, str]]:
    """
    What decides, for whoever reads only the first lines: a broken ending, then the rules behind the outcome.

    A failure that was to be reproduced, and was, stands before the failure itself. A stage that passed says so
    with the rule that answers its own question.

    Args:
        record: What a session found.

    Returns:
        Outcome and sentence, at most five.
    """
    info = record.session
    ending = [] if info.state is SessionState.CLOSED else [(info.state.value, info.reason or "it did not end in order")]
    reproduced = [v for v in record.verdicts if v.rule == "start.expected_failure" and v.outcome is Outcome.PASS]
    weighty = [v for v in record.verdicts if v.outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.WARN)]
    alike = [v for v in record.verdicts if v.outcome is record.outcome and v not in reproduced]
    own = [v for v in alike if v.rule == _OWN_RULE.get(record.plan.stage)]
    decisive = [*reproduced, *(weighty or (own or alike)[:1])]
    return [*ending, *[(v.outcome.value, v.sentence) for v in decisive]][:5]


def write_index(campaign: Path) -> Path:
    """The campaign's page: a row per session, oldest first."""
    rows, provenances = [], set()
    for paths in list_sessions(campaign):
        try:
            record = read_record(paths)
        except RecordError as problem:
            rows.append(IndexRow(paths.name, "", "no record", "", problem.what, None))
            continue
        provenances.add(record.session.provenance)
        changed = _name_change(record.plan)
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
    write_atomic(page, render_index(campaign.name, [BANNERS[p] for p in sorted(provenances)], rows))
    return page


def _name_change(plan: SessionPlan) -> str:
    """The session's one change with its values, and what else differs from the last stable session."""
    values = ", ".join(arm.name.partition("=")[2] for arm in plan.arms)
    said = [f"{key} = {values}" for key in plan.change]
    others = [f"{d.key} → {d.theirs}" for d in plan.differences if d.key not in plan.change]
    return "; ".join([*said, *others]) or "—"
