"""The change journal: a line per change, never rewritten, with the way back and without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3lib.errors import SpecError
from k3lib.record.journal import journal_file, note_change, read_journal


def test_notes_come_back_in_order(tmp_path: Path) -> None:
    """What was noted is read back, oldest first, with its way back."""
    folder = tmp_path / "campaign"
    note_change(folder, "driver upgraded to 580.95", undo="apt install nvidia-driver-580=580.82", who="ana")
    note_change(folder, "firmware\nof GPU 3   flashed", irreversible=True)
    note_change(folder, "moved a cable")
    assert [
        ("driver upgraded to 580.95", "known"),
        ("firmware of GPU 3 flashed", "none"),
        ("moved a cable", "unknown"),
    ] == [(note.what, note.way_back) for note in read_journal(folder)]
    assert "ana" == read_journal(folder)[0].who


def test_a_journal_only_grows(tmp_path: Path) -> None:
    """A new note leaves every byte before it as it was; a line cut by a kill hides no other."""
    note_change(tmp_path, "one")
    before = journal_file(tmp_path).read_bytes()
    journal_file(tmp_path).write_bytes(before + b'{"at": "cut\n')
    note_change(tmp_path, "two")
    assert journal_file(tmp_path).read_bytes().startswith(before)
    assert ["one", "two"] == [note.what for note in read_journal(tmp_path)]


def test_a_note_holds_no_secret_and_no_account(tmp_path: Path) -> None:
    """A token in a note becomes a placeholder, and so does who wrote it."""
    note_change(tmp_path, "logged in with hf_abcdefghijklmnop", undo="unset HF_TOKEN=hf_abcdefghijklmnop")
    kept = journal_file(tmp_path).read_text()
    assert "hf_abcdefghijklmnop" not in kept
    assert read_journal(tmp_path)[0].who.startswith("<user:")


@pytest.mark.parametrize("what", ["", "  \n ", "x" * 501])
def test_a_note_is_one_line(tmp_path: Path, what: str) -> None:
    """Nothing and a novel are refused."""
    with pytest.raises(SpecError):
        note_change(tmp_path, what)
    assert [] == read_journal(tmp_path)


def test_what_cannot_be_undone_has_no_way_back(tmp_path: Path) -> None:
    """Both at once are refused, so that nobody relies on the way back."""
    with pytest.raises(SpecError, match="no way back"):
        note_change(tmp_path, "flashed", undo="flash again", irreversible=True)
