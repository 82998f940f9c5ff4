"""
Writing so that a reader or a power cut never sees half a file.

A temporary file in the same folder, fsync, rename, fsync of the folder.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import orjson

from k3lib.errors import RecordError


def write_atomic(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """
    Put content at path in one step.

    Args:
        path: Where; its folder exists.
        content: Bytes, or text that is written as UTF-8.
        mode: Permission bits.

    Raises:
        RecordError: The disk is full, read-only or the folder is gone; nothing half-written is left.
    """
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as problem:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise RecordError(
            f"{path} could not be written",
            expected="a writable folder with space left",
            evidence=str(problem),
            next="free space or choose another folder with K3_OUTPUTS; what was written before is intact",
        ) from None


def write_json(path: Path, value: object) -> None:
    """The value as indented JSON with a final newline; models are dumped by the caller."""
    write_atomic(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_bytes(path: Path) -> bytes:
    """
    The bytes of an archive file.

    Raises:
        RecordError: Missing or unreadable.
    """
    try:
        return path.read_bytes()
    except OSError as problem:
        raise RecordError(
            f"{path} cannot be read",
            expected="a file of a session's archive",
            evidence=str(problem),
            next="check the folder against its MANIFEST.sha256",
        ) from None


def read_json(path: Path) -> object:
    """The value of a JSON file; raises RecordError if it is missing or not JSON."""
    content = read_bytes(path)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as problem:
        raise RecordError(
            f"{path} is not JSON",
            expected="JSON as this product wrote it",
            evidence=str(problem),
            next="check the folder against its MANIFEST.sha256",
        ) from None


def append_line(path: Path, value: object) -> None:
    """One JSON line at the end of a file, in a single write, so that concurrent readers see whole lines."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[object]:
    """The values of a JSON-lines file; a last line cut by a kill is left out. Empty if there is none."""
    if not path.exists():
        return []
    values = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(orjson.JSONDecodeError):
            values.append(orjson.loads(line))
    return values


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
