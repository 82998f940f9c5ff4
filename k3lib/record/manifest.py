"""A checksum per file of a session, in the form that `sha256sum -c` reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

from k3lib.record.files import write_atomic
from k3lib.record.paths import SessionPaths


def write_manifest(paths: SessionPaths) -> None:
    """Checksums of everything in the session's folder but itself; raw evidence is in it too."""
    lines = [f"{_digest(file)}  {file.relative_to(paths.folder)}" for file in _files(paths)]
    write_atomic(paths.manifest, "\n".join(lines) + "\n")


def verify_manifest(paths: SessionPaths) -> list[str]:
    """
    What differs from the manifest, a sentence each; empty is right.

    Returns:
        Changed, missing and added files; or that there is no manifest.
    """
    if not paths.manifest.exists():
        return ["there is no MANIFEST.sha256: the session was not closed in order"]
    noted = {}
    for line in paths.manifest.read_text("utf-8").splitlines():
        digest, _, name = line.partition("  ")
        noted[name] = digest
    present = {str(file.relative_to(paths.folder)): file for file in _files(paths)}
    changed = [f"{n} changed" for n, file in present.items() if n in noted and _digest(file) != noted[n]]
    return (
        changed
        + [f"{n} is missing" for n in noted if n not in present]
        + [f"{n} was added" for n in present if n not in noted]
    )


def _files(paths: SessionPaths) -> list[Path]:
    skip = {paths.manifest}
    return sorted(f for f in paths.folder.rglob("*") if f.is_file() and not f.is_symlink() and f not in skip)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
