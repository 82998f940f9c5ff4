"""The change journal of a campaign: `outputs/<campaign>/journal.jsonl`, a line per change, only ever longer."""

from __future__ import annotations

import getpass
from pathlib import Path

from pydantic import ValidationError

from k3lib.errors import RecordError, SpecError
from k3lib.record.files import append_line, read_lines
from k3lib.record.redactor import load_redactor
from k3lib.record.sessions import now_text
from k3lib.spec.change_note import ChangeNote

_LONGEST_NOTE = 500


def note_change(
    campaign: Path, what: str, *, undo: str | None = None, irreversible: bool = False, who: str | None = None
) -> ChangeNote:
    """
    Append one change to a campaign's journal.

    Args:
        campaign: The campaign's folder under outputs/; it is made if needed.
        what: What was changed, or is about to be, one line.
        undo: How to go back.
        irreversible: It cannot be undone.
        who: Name to write down; None takes this account's, as a placeholder.

    Returns:
        What was written; secrets and places in it are replaced.

    Raises:
        SpecError: Nothing is said, it is too long, or a way back is given for what has none.
        RecordError: The folder cannot be written.
    """
    what = " ".join(what.split())
    if not what or len(what) > _LONGEST_NOTE:
        raise SpecError(
            "a note is one line",
            expected=f"1 to {_LONGEST_NOTE} characters on what was changed",
            evidence=f"{len(what)} characters",
            next='for example: k3 note "driver upgraded to 580.95" --undo "apt install nvidia-driver-580=580.82"',
        )
    if irreversible and undo:
        raise SpecError(
            "a change that cannot be undone has no way back",
            expected="--undo or --irreversible, not both",
            evidence=f"--undo {undo!r} --irreversible",
            next="leave one of them out",
        )
    redactor = load_redactor()
    note = ChangeNote(
        at=now_text(),
        who=redactor.text(who) if who else redactor.placeholder("user", _account()),
        what=redactor.text(what),
        undo=redactor.text(undo) if undo else None,
        irreversible=irreversible,
    )
    try:
        campaign.mkdir(parents=True, exist_ok=True)
        append_line(journal_file(campaign), note.model_dump(mode="json"))
    except OSError as problem:
        raise RecordError(
            f"the journal of {campaign.name} cannot be written",
            expected="a writable folder",
            evidence=str(problem),
            next="choose another place with K3_OUTPUTS",
        ) from None
    return note


def read_journal(campaign: Path) -> list[ChangeNote]:
    """The notes of a campaign's folder, oldest first; a line of another version is left out."""
    notes = []
    for line in read_lines(journal_file(campaign)):
        try:
            notes.append(ChangeNote.model_validate(line))
        except ValidationError:
            continue  # the file keeps it
    return notes


def journal_file(campaign: Path) -> Path:
    """Where a campaign's journal is."""
    return campaign / "journal.jsonl"


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
