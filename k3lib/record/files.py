"""
Writing so that a reader or a power cut never sees half a file.

A temporary file in the same folder, fsync, rename, fsync of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from k3lib.errors import RecordError

M = TypeVar("M", bound=BaseModel)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """
    What stands under it writes path.

    Raises:
        RecordError: The disk is full, read-only or the folder is gone.
    """
    try:
        yield
    except OSError as problem:
        raise RecordError(
            f"{path} could not be written",
            expected="a writable folder with space left",
            evidence=str(problem),
            next="free space or choose another folder with K3_OUTPUTS; what was written before is intact",
        ) from None


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
    with writing(path):
        try:
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync_folder(path.parent)
        except OSError:
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            raise


def write_json(path: Path, value: object) -> None:
    """The value as indented JSON with a final newline; models are dumped by the caller."""
    write_atomic(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def is_file(path: Path) -> bool:
    """Whether a file lies there; False too for a name that is too long for one, which Python makes an error."""
    try:
        return path.is_file()
    except OSError:
        return False


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


def read_model(model: type[M], path: Path) -> M:
    """
    What a JSON file of an archive says, as the model it was written from.

    Args:
        model: Its type.
        path: Where it lies.

    Raises:
        RecordError: Missing, unreadable, or not what this product writes there.
    """
    try:
        # Strict models forbid keys they do not know; an archive of another version may hold some.
        return model.model_validate_json(read_bytes(path), extra="ignore")
    except ValidationError as problem:
        first = problem.errors()[0]
        raise RecordError(
            f"{path} is not what this product writes there",
            expected=f"schema of version 1, at {'.'.join(map(str, first['loc'])) or 'the top'}",
            evidence=first["msg"],
            next="check the folder against its MANIFEST.sha256",
        ) from None


def append_line(path: Path, value: object) -> None:
    """
    One JSON line at the end of a file, in a single write, so that concurrent readers see whole lines.

    Raises:
        RecordError: The disk is full, read-only or the folder is gone.
    """
    line = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(descriptor, line) < len(line):  # the last block of a full disk takes a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)


def read_lines(path: Path) -> list[object]:
    """The values of a JSON-lines file; a last line cut by a kill is left out. Empty if there is none."""
    if not path.exists():
        return []
    values = []
    for line in read_bytes(path).splitlines():
        with contextlib.suppress(orjson.JSONDecodeError):
            values.append(orjson.loads(line))
    return values


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
