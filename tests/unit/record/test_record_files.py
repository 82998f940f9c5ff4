"""Archives: never half written, never overwritten, exclusive."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.synchronize
import os
import signal
import time
from pathlib import Path

import pytest

from k3lib.errors import BusyError, RecordError
from k3lib.record.files import append_line, read_json, read_lines, write_atomic, write_json
from k3lib.record.lock import CampaignLock
from k3lib.record.manifest import verify_manifest, write_manifest
from k3lib.record.paths import SessionPaths


def _rewrite(path: str) -> None:
    for count in range(10**9):
        write_json(Path(path), {"count": count, "filler": "x" * 200_000})


def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    """kill -9 in the middle of writing, ten times: the file is always valid JSON."""
    path = tmp_path / "record.json"
    write_json(path, {"count": -1})
    for _ in range(10):
        writer = multiprocessing.get_context("fork").Process(target=_rewrite, args=(str(path),))
        writer.start()
        time.sleep(0.05)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        assert isinstance(json.loads(path.read_bytes())["count"], int)


def test_a_full_disk_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the new content cannot be written, the old one stands and nothing else is left."""
    path = tmp_path / "record.json"
    write_atomic(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError) as refused:
        write_atomic(path, "new")
    assert "No space left" in refused.value.evidence
    assert "old" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    """A JSON-lines file cut by a kill keeps its whole lines."""
    path = tmp_path / "events.jsonl"
    append_line(path, {"n": 1})
    append_line(path, {"n": 2})
    path.write_bytes(path.read_bytes() + b'{"n": 3, "tex')
    assert [{"n": 1}, {"n": 2}] == read_lines(path)


def test_unreadable_json_is_our_error(tmp_path: Path) -> None:
    """A broken archive file is named, in four lines."""
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(RecordError, match=r"x\.json is not JSON"):
        read_json(tmp_path / "x.json")


def _hold(folder: str, ready: multiprocessing.synchronize.Event) -> None:
    with CampaignLock(Path(folder), "other-session"):
        ready.set()
        time.sleep(60)


def test_two_runs_exclude_each_other(tmp_path: Path) -> None:
    """The second run is told who holds the campaign; when the holder dies the lock is free at once."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(str(tmp_path), ready))
    holder.start()
    assert ready.wait(10)
    with pytest.raises(BusyError) as refused:
        CampaignLock(tmp_path, "mine").acquire()
    assert f"pid {holder.pid}, session other-session" in refused.value.evidence
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join()
    CampaignLock(tmp_path, "mine").acquire().release()


def test_manifest_names_what_changed(tmp_path: Path) -> None:
    """A changed, a missing and an added file are each named."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    paths = SessionPaths(tmp_path)
    write_manifest(paths)
    assert [] == verify_manifest(paths)
    (tmp_path / "a").write_text("other")
    (tmp_path / "b").unlink()
    (tmp_path / "c").write_text("c")
    assert ["a changed", "b is missing", "c was added"] == verify_manifest(paths)
