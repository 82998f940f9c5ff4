"""Runs one session in batch: lock, folder, papermill, record, page. However it ends, the archive says so."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from k3lib.errors import K3Error, RecordError
from k3lib.launch.leftovers import sweep_leftovers
from k3lib.notebook.document import embed_record, read_embedded_record
from k3lib.notebook.execute import NotebookResult, execute_notebook
from k3lib.record.evidence import read_mark, redact_log
from k3lib.record.files import read_lines
from k3lib.record.lock import CampaignLock
from k3lib.record.parameters import Places, read_session
from k3lib.record.paths import SessionPaths
from k3lib.record.redactor import load_redactor
from k3lib.record.schema import Record
from k3lib.record.sessions import list_sessions, name_session, read_info
from k3lib.spec.session import SessionSpec, stage_of
from k3lib.spec.vocabulary import Outcome, SessionState, StageName
from k3lib.workbook.lifecycle import begin_session, end_session
from k3lib.workbook.opening import SESSION_VARIABLE
from k3lib.workbook.prepare import Prepared, prepare_session
from k3lib.workbook.render import render_session

OnEvent = Callable[[dict[str, object]], None]
_FOLLOW_EVERY_S = 0.2


@dataclass(frozen=True)
class SessionRun:
    """
    A session that has ended.

    Args:
        paths: Its folder.
        record: What it found.
        fixed_s: What the notebook cost beside its cells, seconds.
        work_s: What its cells took, seconds.
    """

    paths: SessionPaths
    record: Record
    fixed_s: float
    work_s: float

    @property
    def exit_code(self) -> int:
        """
        0 conclusive, 1 our fault, 3 the stage failed, 5 a time-out, 125 inconclusive.

        A failure that was to be reproduced, and was, is conclusive.
        """
        state, outcome = self.record.session.state, self.record.outcome
        if state is SessionState.TIMED_OUT:
            return 5
        if state is SessionState.INTERRUPTED:
            return 125
        if state is not SessionState.CLOSED or outcome is Outcome.ERROR:
            return 1
        if outcome in (Outcome.PASS, Outcome.WARN):
            return 0
        if outcome is Outcome.SKIP:
            return 125
        reproduced = [v for v in self.record.verdicts if v.rule == "start.expected_failure"]
        if reproduced and reproduced[0].outcome is Outcome.PASS:
            return 0
        return 5 if any(t.timed_out for t in self.record.trials) else 3


def prepare_file(places: Places, file: Path) -> Prepared:
    """The session of a file, resolved and checked; nothing is started. Raises as `prepare_session` does."""
    return prepare_session(places, stage_of(file.name), read_session(places, file), source=str(file))


def run_session(places: Places, file: Path, on_event: OnEvent) -> SessionRun:
    """
    Run the session that a file describes.

    Args:
        places: The workbook's folders.
        file: The session file.
        on_event: Called with each event of the session, from another thread.

    Returns:
        How it ended; an engine that dies is a result.

    Raises:
        K3Error: It was refused; nothing was started.
        KeyboardInterrupt: After the archive was closed.
    """
    spec, stage = read_session(places, file), stage_of(file.name)
    prepared = prepare_session(places, stage, spec, source=str(file))
    session = name_session(stage.value)
    with CampaignLock(places.outputs / prepared.plan.campaign.name, session):
        sweep_killed(places, prepared.plan.campaign.name)
        paths = begin_session(prepared, session)
        try:
            result = _execute(places, stage, spec, paths, on_event)
        except BaseException as problem:
            by_hand = isinstance(problem, KeyboardInterrupt)
            state = SessionState.INTERRUPTED if by_hand else SessionState.FAILED
            finish_session(paths, state, "it was interrupted before the first cell" if by_hand else str(problem))
            raise
        record = finish_session(paths, result.state, result.reason)
    if result.state is SessionState.INTERRUPTED:
        raise KeyboardInterrupt
    return SessionRun(paths, record, result.fixed_s, result.work_s)


def finish_session(paths: SessionPaths, state: SessionState, reason: str | None) -> Record:
    """
    End a session's archive: nothing of it runs, logs redacted, record, notebook, page, checksums.

    Args:
        paths: Its folder.
        state: How it ended; an ending that its notebook wrote stays.
        reason: Why, first line; None when closed.

    Returns:
        The record.
    """
    for _, trial in paths.trials():
        # A damaged or full folder must not hide the ending: what is missing shows as missing in the record.
        with contextlib.suppress(RecordError):
            if mark := read_mark(trial):  # its keeper ends an engine within seconds, unless that was killed too
                sweep_leftovers(mark, trial.raw_log)
        with contextlib.suppress(RecordError):
            if not trial.log.exists():
                redact_log(trial, load_redactor())
    record = end_session(paths, state, reason.splitlines()[0] if reason else None)
    if paths.notebook.exists() and read_embedded_record(paths.notebook) is None:
        embed_record(paths.notebook, record.model_dump(mode="json"))
    render_session(paths, record)
    return record


def sweep_killed(places: Places, campaign: str) -> list[str]:
    """
    Finish the archives of sessions whose process is gone and left them open.

    Args:
        places: The workbook's folders.
        campaign: The campaign, whose lock is held.

    Returns:
        Their names.
    """
    swept = []
    for paths in list_sessions(places.outputs / campaign):
        with contextlib.suppress(K3Error):
            info = read_info(paths)
            open_still = info.ended_at is None or not paths.manifest.exists()
            if info.state is not SessionState.RUNNING and open_still:
                finish_session(paths, info.state, info.reason)
                swept.append(paths.name)
    return swept


def _execute(
    places: Places, stage: StageName, spec: SessionSpec, paths: SessionPaths, on_event: OnEvent
) -> NotebookResult:
    environment = {
        SESSION_VARIABLE: str(paths.folder),
        "K3_ROOT": str(places.root),
        "K3_OUTPUTS": str(places.outputs),
    }
    with _follow(paths, on_event):
        return execute_notebook(
            places.notebooks / f"{stage.value}.ipynb",
            paths.notebook,
            spec.model_dump(mode="json"),
            environment=environment,
            cwd=places.root,
        )


@contextlib.contextmanager
def _follow(paths: SessionPaths, on_event: OnEvent) -> Iterator[None]:
    """Hands on the session's events as the kernel writes them."""
    done = threading.Event()

    def follow() -> None:
        seen = 0
        while True:
            last = done.wait(_FOLLOW_EVERY_S)
            events = read_lines(paths.events)
            for event in events[seen:]:
                if isinstance(event, dict):
                    on_event(event)
            seen = len(events)
            if last:
                return

    thread = threading.Thread(target=follow, name="k3-follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=5)
