"""
Processes of a trial that are still there although nobody keeps them any more.

Two marks, because neither is enough: a variable in the environment, which vLLM's EngineCore and workers lose when
they rename themselves (setproctitle writes over it; seen with vLLM 0.32.0), and the trial's log as their output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from pathlib import Path

from k3lib.launch.keeper import TRACKER_GRACE_S, describe, is_tracker

MARK = "K3_TRIAL"
"""Variable in the environment of every process of an engine; its value is the trial's token."""

_PATIENCE_S = 5.0
_LOOK_AGAIN_S = 0.02

_FileId = tuple[int, int]


def find_marked(token: str, log: int | Path | None = None) -> list[int]:
    """
    Process ids that carry a trial's mark, ascending; ours is never among them.

    Args:
        token: The trial's token, not empty.
        log: The trial's log, open or by its path: a process that writes there belongs to the trial. It counts only
            if it is a regular file and not where our own output goes.
    """
    if not token:
        raise ValueError("an empty token would match nothing that is ours")
    entry = f"{MARK}={token}".encode()
    file = None if log is None else _log_identity(log)
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return sorted(pid for pid in pids if pid != os.getpid() and (_has_entry(pid, entry) or _writes_to(pid, file)))


def sweep_leftovers(token: str, log: int | Path | None = None) -> list[str]:
    """
    Kill what is left of a trial, even after its keeper was killed.

    Args:
        token: The trial's token.
        log: The trial's log, open or by its path.

    Returns:
        What was found alive, `pid 4121: VLLM::EngineCore`; empty is right.
    """
    found: dict[int, str] = {}
    start = time.monotonic()
    while (pids := find_marked(token, log)) and (spent := time.monotonic() - start) < _PATIENCE_S:
        for pid in pids:
            words = found.setdefault(pid, describe(pid))
            if spent < TRACKER_GRACE_S and is_tracker(words):
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_AGAIN_S)
    return list(found.values())


def _has_entry(pid: int, entry: bytes) -> bool:
    try:
        return entry in Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _writes_to(pid: int, file: _FileId | None) -> bool:
    return file is not None and any(_identity(f"/proc/{pid}/fd/{number}") == file for number in (1, 2))


def _log_identity(log: int | Path) -> _FileId | None:
    """The log's file, unless others than the engine write there by right."""
    try:
        regular = stat.S_ISREG(os.stat(log).st_mode)
    except OSError:
        return None
    file = _identity(log)
    return file if regular and file not in (_identity(1), _identity(2)) else None


def _identity(place: int | str | Path) -> _FileId | None:
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino
