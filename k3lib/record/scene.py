"""The frozen scene in a session's folder: raw in `raw/` (0700), the same redacted in `scene/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from k3lib.errors import RecordError
from k3lib.judge.scene_facts import SceneFacts
from k3lib.record.files import read_json, write_atomic, write_json
from k3lib.record.paths import SessionPaths
from k3lib.redact import Redactor
from k3lib.spec.snapshot import Collected, Snapshot

LOG = "first-error.log"
_MOST_LOG_BYTES = 64 * 1024 * 1024


def prepare_scene(paths: SessionPaths) -> None:
    """The two folders; the raw one is readable by its owner only."""
    paths.raw.mkdir(mode=0o700, exist_ok=True)
    paths.scene.mkdir(exist_ok=True)


def keep_raw(paths: SessionPaths, view: str, collected: Collected) -> None:
    """One collection as it came, before it is read."""
    content = orjson.dumps(collected.model_dump(mode="json"), option=orjson.OPT_INDENT_2)
    write_atomic(paths.raw / f"{view or 'host'}.json", content, mode=0o600)


def keep_log(paths: SessionPaths, source: Path, redactor: Redactor) -> Path:
    """
    A log of the failing evening: whole in `raw/`, redacted line for line in `scene/`.

    Args:
        paths: The session.
        source: The file.
        redactor: For the copy that leaves `raw/`.

    Returns:
        The redacted copy.

    Raises:
        RecordError: The file cannot be read, or is larger than 64 MiB.
    """
    try:
        size = source.stat().st_size
        content = source.read_bytes() if size <= _MOST_LOG_BYTES else b""
    except OSError as problem:
        raise _no_log(source, str(problem)) from None
    if size > _MOST_LOG_BYTES:
        raise _no_log(source, f"it holds {size} bytes")
    write_atomic(paths.raw / LOG, content, mode=0o600)
    lines = content.decode("utf-8", "replace").split("\n")
    write_atomic(paths.scene / LOG, "\n".join(redactor.text(line) for line in lines))
    return paths.scene / LOG


def write_scene(paths: SessionPaths, scene: SceneFacts, redactor: Redactor) -> None:
    """
    The scene, redacted: a file per view, the changes, and the rest in `scene.json`.

    Args:
        paths: The session.
        scene: What was collected.
        redactor: For everything in it.
    """
    kept: Any = redactor.value(scene.model_dump(mode="json"))
    for view, snapshot in kept.pop("views").items():
        write_json(paths.scene / f"{view or 'host'}.json", {"view": view, "snapshot": snapshot})
    changes = [redactor.value(change.model_dump(mode="json")) for change in scene.changes()]
    write_json(paths.scene / "changes.json", {"noted": kept["notes"], "reconstructed": changes})
    command = {"from": kept["command_from"], "argv": kept["command"], "environment": kept["environment"]}
    write_json(paths.scene / "command.json", command)
    write_json(paths.scene / "scene.json", kept)


def read_scene(paths: SessionPaths) -> SceneFacts | None:
    """
    The scene as its folder shows it; None for a session that froze none.

    Raises:
        RecordError: A file of it is not one of ours.
    """
    file = paths.scene / "scene.json"
    if not file.exists():
        return None
    kept: Any = read_json(file)
    views: dict[str, Snapshot] = {}
    try:
        for one in sorted(paths.scene.glob("*.json")):
            content: Any = read_json(one)
            if isinstance(content, dict) and "snapshot" in content:
                views[content["view"]] = Snapshot.model_validate(content["snapshot"])
        return SceneFacts.model_validate({**kept, "views": dict(sorted(views.items()))})
    except (ValidationError, TypeError, KeyError) as problem:
        raise RecordError(
            f"{paths.scene} is not a scene of this product",
            expected="the files that stage 10 wrote",
            evidence=str(problem).splitlines()[0],
            next="check the folder against its MANIFEST.sha256",
        ) from None


def _no_log(source: Path, evidence: str) -> RecordError:
    return RecordError(
        f"the log {source} cannot be kept",
        expected="a readable text file of at most 64 MiB",
        evidence=evidence,
        next="check the path; of a longer log keep the beginning, where the first error stands",
    )
