"""A session's folder from opening to ending; the batch runner and a notebook alone go the same way."""

from __future__ import annotations

from k3lib.judge.gates import Gate
from k3lib.record.paths import SessionPaths
from k3lib.record.schema import Record
from k3lib.record.sessions import create_session, now_text, read_info, write_info, write_record
from k3lib.spec.vocabulary import SessionState
from k3lib.workbook.assemble import assemble_record
from k3lib.workbook.place import settle_place, take_fingerprint, write_place
from k3lib.workbook.prepare import Prepared


def begin_session(prepared: Prepared, name: str) -> SessionPaths:
    """
    The session's folder with intent, state, fingerprint and a first record in it.

    Args:
        prepared: A session that may run; the campaign's lock is held by the caller.
        name: From `name_session`.

    Returns:
        Its paths.

    Raises:
        SpecError: The place has changed too, so that it would be two changes; no folder was made.
        RecordError: The folder cannot be made.
    """
    fingerprint = take_fingerprint(prepared)
    prepared = settle_place(prepared, fingerprint)
    paths = create_session(prepared.places.outputs, prepared.plan, name, prepared.provenance)
    write_place(paths, prepared, fingerprint)
    keep_record(paths, prepared.gate)
    return paths


def keep_record(paths: SessionPaths, gate: Gate | None = None) -> Record:
    """The record assembled from the folder and written, in one step; redacted, as it may be shown."""
    return write_record(paths, assemble_record(paths, gate))


def end_session(paths: SessionPaths, state: SessionState, reason: str | None = None) -> Record:
    """
    Write how a session ended, and its record; an ending once written stays.

    Args:
        paths: Its folder.
        state: How it ended.
        reason: Why, if it was not closed in order.

    Returns:
        The record.
    """
    info = read_info(paths)
    if info.ended_at is None:
        write_info(paths, info.model_copy(update={"state": state, "reason": reason, "ended_at": now_text()}))
    return keep_record(paths)
