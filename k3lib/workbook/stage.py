"""What every stage's notebook holds: one session, open; its verdict; its closing."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Iterator
from typing import Any

from k3lib.errors import K3Error, RecordError
from k3lib.probe.fingerprint import describe_fingerprint
from k3lib.record.files import read_json
from k3lib.record.lock import CampaignLock
from k3lib.record.paths import SessionPaths
from k3lib.record.redactor import redact_model
from k3lib.record.schema import Record
from k3lib.record.sessions import read_info
from k3lib.report import session as tables
from k3lib.report.tables import Table
from k3lib.spec.vocabulary import Outcome, SessionState
from k3lib.workbook.lifecycle import end_session, keep_record
from k3lib.workbook.place import write_end
from k3lib.workbook.prepare import Prepared
from k3lib.workbook.show import Closing, Head


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
            redact_model(self._prepared.plan),
            self.paths,
            redact_model(self._prepared.gate),
            describe_fingerprint(fingerprint),
            self._prepared.provenance,
        )

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
        self._look_again()
        record = self._end(SessionState.CLOSED, None)
        return Closing(record.model_dump(mode="json"), self.paths, _what_opens(record))

    def _look_again(self) -> None:
        """The place at the end, to tell whether it changed while the session ran."""
        write_end(self.paths, self._prepared)

    def _end(self, state: SessionState, reason: str | None) -> Record:
        self._closed = True
        self._record = end_session(self.paths, state, reason)
        if self._lock:
            self._lock.release()
        return self._record

    @contextlib.contextmanager
    def _written(self, what: str) -> Iterator[None]:
        """Whatever cuts the work inside short stands in the record before it goes on its way."""
        try:
            yield
        except KeyboardInterrupt:
            # The kernel is interrupted by hand, or because the runner that owns the session is gone.
            owner = read_info(self.paths)
            killed = owner.state is SessionState.KILLED
            reason = owner.reason if killed else f"it was interrupted by hand while {what}"
            self._end(owner.state if killed else SessionState.INTERRUPTED, reason)
            raise
        except BaseException as problem:
            self._fail(problem)
            raise

    def _fail(self, problem: BaseException) -> None:
        """Write that the session failed and why, if that can be written; the caller raises the problem itself."""
        said = str(problem) if isinstance(problem, K3Error) else f"{type(problem).__name__}: {problem}"
        with contextlib.suppress(RecordError):
            self._end(SessionState.FAILED, said.splitlines()[0])

    def _end_unclosed(self) -> None:
        """The kernel goes down with the session open: say so, if this process is the one that owns it."""
        if not self._closed and self._lock is not None:
            self._end(SessionState.INTERRUPTED, "the kernel ended before the session was closed")


def _what_opens(record: Record) -> str:
    if record.outcome in (Outcome.PASS, Outcome.WARN):
        return f"The gate after {record.session.stage} is open."
    return f"The gate after {record.session.stage} stays closed: its outcome is {record.outcome.value}."
