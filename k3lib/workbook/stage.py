"""What a stage's notebook holds: open, run the trials, look, close."""

from __future__ import annotations

import ast
import atexit
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from k3lib.errors import RecordError, SpecError
from k3lib.probe.fingerprint import describe_fingerprint
from k3lib.record.files import read_json
from k3lib.record.lock import CampaignLock
from k3lib.record.parameters import find_places
from k3lib.record.paths import SessionPaths
from k3lib.record.redactor import load_redactor
from k3lib.record.schema import Record
from k3lib.record.sessions import name_session, read_plan
from k3lib.report import session as tables
from k3lib.report.figures import Picture, draw_phases
from k3lib.report.tables import Table
from k3lib.spec.session import SessionSpec, stage_of
from k3lib.spec.validation import load_model, nearest
from k3lib.spec.vocabulary import Outcome, Provenance, SessionState
from k3lib.workbook.lifecycle import begin_session, end_session, keep_record
from k3lib.workbook.prepare import Prepared, prepare_session
from k3lib.workbook.show import Closing, Head, LiveLine
from k3lib.workbook.trial import TrialRun

SESSION_VARIABLE = "K3_SESSION"
"""Names the folder that the batch runner made; without it a notebook makes its own."""


def open_stage(name: str, **parameters: Any) -> Stage:
    """
    The session that a stage's notebook runs.

    Run by `k3 run`, the session's folder is there already; run by plain papermill or by hand in
    JupyterLab, this makes it, with the same checks.

    Args:
        name: The notebook's name without its ending.
        parameters: The notebook's parameters, all of them.

    Returns:
        The open stage.

    Raises:
        SpecError: An unknown or wrong parameter, or more than one change.
        GateClosed: The stage before has not passed.
        LaunchError: No program, no model, or the port is taken; nothing was started.
        BusyError: Another run holds the campaign.
    """
    _refuse_unknown_names(name)
    places = find_places()
    spec = load_model(SessionSpec, parameters, source=f"the parameters of {name}")
    folder = os.environ.get(SESSION_VARIABLE)
    prepared = prepare_session(places, stage_of(name), spec)
    if folder:
        paths = SessionPaths(Path(folder))
        if read_plan(paths).spec != spec:
            raise RecordError(
                f"the folder of {paths.name} was made for other parameters",
                expected="the parameters that the runner passed",
                evidence=f"{spec}",
                next=f"unset {SESSION_VARIABLE}, or run with `k3 run`",
            )
        return Stage(prepared, paths, lock=None)
    session = name_session(prepared.plan.stage.value)
    lock = CampaignLock(places.outputs / prepared.plan.campaign.name, session).acquire()
    return Stage(prepared, begin_session(prepared, session), lock)


class Stage:
    """
    One session in a notebook. Everything it shows is read from the session's folder.

    Args:
        prepared: What may run.
        paths: The session's folder.
        lock: The campaign's lock, if this process is the one that holds it.
    """

    def __init__(self, prepared: Prepared, paths: SessionPaths, lock: CampaignLock | None) -> None:
        self._prepared, self.paths, self._lock = prepared, paths, lock
        self._record: Record | None = None
        self._closed = False
        atexit.register(self._end_unclosed)

    @property
    def record(self) -> Record:
        """Everything found so far."""
        if self._record is None:
            self._record = keep_record(self.paths)
        return self._record

    def show_setup(self) -> Head:
        """Campaign, session, the one change, the fingerprint line, and where the evidence comes from."""
        fingerprint: Any = read_json(self.paths.fingerprint)
        return Head(
            self._prepared.plan,
            self.paths,
            self._prepared.gate,
            describe_fingerprint(fingerprint),
            self._prepared.provenance,
        )

    def run_trials(self) -> Table:
        """
        Run every trial of the session, each a fresh start; can be interrupted, and then stops its engine.

        Returns:
            A row per trial.

        Raises:
            LaunchError: We could not start an engine; an engine that dies is a row instead.
            KeyboardInterrupt: After the engine is gone and the record says so.
        """
        threading.Thread(target=_import_drawing, daemon=True).start()
        trials = self._prepared.plan.trials()
        with LiveLine(self.paths.name, len(trials)) as line:
            run = TrialRun(self._prepared, self.paths, load_redactor(), line.show)
            try:
                for number, arm in trials[len(self.paths.trials()) :]:
                    run.run(number, arm)
            except KeyboardInterrupt:
                self._end(SessionState.INTERRUPTED, "it was interrupted by hand while a trial ran")
                raise
            except BaseException as problem:
                self._end(SessionState.FAILED, f"{type(problem).__name__}: {problem}".splitlines()[0])
                raise
        self._record = keep_record(self.paths)
        return self.trials()

    def trials(self) -> Table:
        """A row per fresh start."""
        return tables.table_trials(self.record.trials)

    def phases(self) -> Picture | Table:
        """How long each phase of each start took."""
        return draw_phases(self.record.trials, self._prepared.provenance)

    def journal(self) -> Table:
        """The log, read in its order."""
        return tables.table_journal(self.record.trials)

    def effective(self) -> Table:
        """Intent against what runs."""
        return tables.table_effective(self.record.trials)

    def requests(self) -> Table:
        """The frozen request and its warm-up, as the client saw them."""
        return tables.table_requests(self.record.trials, timed=self._prepared.provenance is not Provenance.REHEARSAL)

    def probes(self) -> Table:
        """The four functional probes of a proof of concept."""
        return tables.table_probes(self.record.trials)

    def measurements(self) -> Table:
        """Numbers with unit, n and interval."""
        return tables.table_measurements(self.record.measurements)

    def checklist(self) -> Table:
        """The seven steps of a proof of concept, computed."""
        return tables.table_checklist(self.record.checklist)

    def verdict(self) -> Table:
        """What the rules found."""
        return tables.table_verdicts(self.record.verdicts)

    def close(self) -> Closing:
        """
        End the session in order: write the record and say what opens next.

        Returns:
            Shows the outcome and the path; carries the record in the notebook.
        """
        record = self._end(SessionState.CLOSED, None)
        return Closing(record.model_dump(mode="json"), self.paths, _what_opens(record))

    def _end(self, state: SessionState, reason: str | None) -> Record:
        self._closed = True
        self._record = end_session(self.paths, state, reason)
        if self._lock:
            self._lock.release()
        return self._record

    def _end_unclosed(self) -> None:
        """The kernel goes down with the session open: say so, if this process is the one that owns it."""
        if not self._closed and self._lock is not None:
            self._end(SessionState.INTERRUPTED, "the kernel ended before the session was closed")


def _what_opens(record: Record) -> str:
    if record.outcome in (Outcome.PASS, Outcome.WARN):
        return f"The gate after {record.session.stage} is open."
    return f"The gate after {record.session.stage} stays closed: its outcome is {record.outcome.value}."


def _import_drawing() -> None:
    """Slow imports while the engine starts, so that the first figure does not wait for them."""
    import matplotlib.figure  # noqa: F401
    import seaborn  # noqa: F401


def _refuse_unknown_names(notebook: str) -> None:
    """
    Names that papermill injected and the notebook does not have; plain papermill only logs them.

    papermill's cell begins with a comment that names it, and IPython keeps every cell that ran.
    """
    known = set(SessionSpec.model_fields)
    for source in _history():
        if not source.lstrip().startswith("# Parameters"):
            continue
        for statement in ast.parse(source).body:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Name) and target.id not in known:
                    meant = nearest(target.id, known)
                    raise SpecError(
                        f"{notebook} has no parameter {target.id}",
                        expected=meant or f"one of {', '.join(sorted(known))}",
                        evidence=ast.unparse(statement),
                        next=f"write {meant}" if meant else "take it out of the parameter file",
                    )


def _history() -> list[str]:
    import IPython

    get_shell: Callable[[], Any] = IPython.get_ipython
    shell = get_shell()
    return list(shell.user_ns.get("In", [])) if shell is not None else []
