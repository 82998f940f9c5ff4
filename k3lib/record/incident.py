"""
What a person hands over to be read: a file, a folder, standard input; opened so that anything can be in it.

A folder is one incident with several files. Nothing in it is followed out of it, waited for, or
believed to be a log because of its name: links, pipes, devices and files that are no text are left
out, each with its reason. Reading never raises; what kept a file from being read whole stands in
its `notes` afterwards.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from k3lib.errors import InputError
from k3lib.record.unpack import BLOCK_BYTES, DamagedInput, is_packed, to_utf8, unpack

STANDARD_INPUT = "-"
_MOST_FILES = 1000
_SNIFFED_BYTES = 8192
_CONTROLS = bytes({*range(1, 7), 11, *range(14, 27), *range(28, 32), 127})  # a terminal log has none of these
_MOST_CONTROLS_FRACTION = 0.02  # bytes drawn at random hold 10 %
_MOST_FOREIGN_FRACTION = 0.3  # bytes that are no UTF-8: Latin-1 text holds few, weights half


class Trouble(StrEnum):
    """Why a file was not read, or not to its end."""

    UNREADABLE = "unreadable"  # no permission, no such file, an error of the disk
    NOT_A_FILE = "not-a-file"  # a pipe, a socket or a device inside a folder
    LINK = "link"  # inside a folder
    NO_TEXT = "no-text"  # weights, a picture, a core dump
    DAMAGED = "damaged"  # compressed and broken off; what came out was used
    TOO_MANY = "too-many"  # beyond the first 1,000 files of a folder


@dataclass(frozen=True, slots=True)
class Note:
    """
    What kept something from being read.

    Args:
        file: Its name, relative to the argument.
        trouble: Why.
        detail: What the system said, or an empty text.
    """

    file: str
    trouble: Trouble
    detail: str = ""


@dataclass(slots=True)
class IncidentFile:
    """
    One file of an incident, not yet read.

    Args:
        name: The argument itself, or the path below it if that is a folder.
        size_bytes: As stored; None for a stream.
        opener: Gives the stored bytes.
        notes: What kept it from being read whole; complete once `chunks` is exhausted.
    """

    name: str
    size_bytes: int | None
    opener: Callable[[], BinaryIO]
    notes: list[Note] = field(default_factory=list)

    def chunks(self) -> Iterator[bytes]:
        """
        Its text, decompressed, in UTF-8, without NUL bytes.

        Yields:
            Blocks of about 1 MiB. Ends early, with a note, where the file cannot be read on.
        """
        try:
            with self.opener() as stored:
                yield from to_utf8(unpack(_read_blocks(stored)))
        except DamagedInput as problem:
            self.notes.append(Note(self.name, Trouble.DAMAGED, str(problem)))
        except OSError as problem:
            self.notes.append(Note(self.name, Trouble.UNREADABLE, _said(problem)))


@dataclass(slots=True)
class Incident:
    """
    The files that one argument stands for.

    Args:
        argument: As given.
        files: In the order of their names; at least one.
        left_out: What of a folder was not taken.
    """

    argument: str
    files: list[IncidentFile]
    left_out: list[Note] = field(default_factory=list)

    @property
    def notes(self) -> list[Note]:
        """Everything that was not read, or not to its end; complete once every file was read."""
        return [*self.left_out, *(note for file in self.files for note in file.notes)]


def open_incident(argument: str) -> Incident:
    """
    What an argument of the command line stands for.

    Args:
        argument: A file of any kind, a folder, or `-` for standard input.

    Returns:
        The incident; its files are opened one after another when they are read.

    Raises:
        InputError: Nothing at all can be read.
    """
    if argument == STANDARD_INPUT:
        return Incident(argument, [IncidentFile(argument, None, _open_standard_input)])
    path = Path(argument)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            return _open_folder(argument, path)
        if stat.S_ISREG(status.st_mode):
            path.open("rb").close()
    except (OSError, ValueError) as problem:
        raise _nothing(argument, _said(problem)) from None
    # A pipe is opened only once, when it is read: what was written into it is there once.
    size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
    return Incident(argument, [IncidentFile(argument, size_bytes, lambda: path.open("rb"))])


def _open_folder(argument: str, folder: Path) -> Incident:
    files: list[IncidentFile] = []
    left_out: list[Note] = []
    for path in _walk(folder, left_out):
        name = path.relative_to(folder).as_posix()
        if len(files) >= _MOST_FILES:
            left_out.append(Note(name, Trouble.TOO_MANY))
            break
        taken = _take(path, name)
        if isinstance(taken, Note):
            left_out.append(taken)
        else:
            files.append(taken)
    if not files:
        seen = [f"{note.file}: {note.detail or note.trouble.value}" for note in left_out[:3]]
        raise _nothing(argument, "; ".join(seen) or "the folder is empty")
    return Incident(argument, files, left_out)


def _walk(folder: Path, left_out: list[Note]) -> Iterator[Path]:
    def refuse(problem: OSError) -> None:
        name = Path(problem.filename or folder).relative_to(folder).as_posix()
        left_out.append(Note(name, Trouble.UNREADABLE, _said(problem)))

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        # os.walk lists a link to a folder among the folders and does not enter it.
        linked = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in sorted([*names, *linked]))


def _take(path: Path, name: str) -> IncidentFile | Note:
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return Note(name, Trouble.LINK)
        if not stat.S_ISREG(status.st_mode):
            return Note(name, Trouble.NOT_A_FILE)
        # A checkpoint begins with a page of JSON; its middle tells.
        samples = [_sniff(path, at) for at in (0, status.st_size // 2)]
    except OSError as problem:
        return Note(name, Trouble.UNREADABLE, _said(problem))
    if not all(map(_looks_like_text, samples)):
        return Note(name, Trouble.NO_TEXT)
    return IncidentFile(name, status.st_size, lambda: path.open("rb"))


def _sniff(path: Path, at: int) -> bytes:
    with path.open("rb") as stored:
        start = stored.read(_SNIFFED_BYTES)
        if at and not is_packed(start):
            stored.seek(at)
            start = stored.read(_SNIFFED_BYTES)
    try:
        return next(to_utf8(unpack([start])))
    except (DamagedInput, StopIteration):
        return b""  # of a compressed file so few bytes may give no text yet


def _looks_like_text(sample: bytes) -> bool:
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    foreign = sample.decode("utf-8", "replace").count("\ufffd")
    return controls <= len(sample) * _MOST_CONTROLS_FRACTION and foreign <= len(sample) * _MOST_FOREIGN_FRACTION


def _open_standard_input() -> BinaryIO:
    # Its own handle: closing it must leave the process its standard input.
    return os.fdopen(os.dup(0), "rb")


def _said(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem)


def _read_blocks(stored: BinaryIO) -> Iterator[bytes]:
    while block := stored.read(BLOCK_BYTES):
        yield block


def _nothing(argument: str, evidence: str) -> InputError:
    return InputError(
        f"nothing can be read from {argument}",
        expected="a log file, plain or compressed, a folder with such files, or - for standard input",
        evidence=evidence,
        next="check the path and its permissions; `k3 triage -` reads what is piped into it",
    )
