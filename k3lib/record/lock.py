"""
One run at a time on a campaign.

The lock is the kernel's (`flock`): it is gone the moment its holder dies, so no stale lock exists.
What the file says is only for the message.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

import orjson

from k3lib.errors import BusyError, RecordError


class CampaignLock:
    """
    Holds a campaign's folder while a session runs.

    Args:
        folder: The campaign's folder under outputs/; it is made if needed.
        session: The session's name, for the message that another run prints.
    """

    def __init__(self, folder: Path, session: str) -> None:
        self._path = folder / ".lock"
        self._session = session
        self._descriptor: int | None = None

    def acquire(self) -> CampaignLock:
        """
        Take the lock without waiting.

        Raises:
            BusyError: Another run holds it; says which, since when.
            RecordError: The folder cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise RecordError(
                f"the campaign's folder {self._path.parent} cannot be written",
                expected="a writable folder",
                evidence=str(problem),
                next="choose another place with K3_OUTPUTS",
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _describe(os.pread(descriptor, 4096, 0))
            os.close(descriptor)
            raise BusyError(
                f"another run holds the campaign {self._path.parent.name}",
                expected="one session at a time on a campaign",
                evidence=holder,
                next="wait for it, or stop it with Ctrl-C where it runs",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, orjson.dumps({"pid": os.getpid(), "session": self._session, "since": time.time()}), 0)
        self._descriptor = descriptor
        return self

    def release(self) -> None:
        """Let go; a second call does nothing."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> CampaignLock:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _describe(content: bytes) -> str:
    try:
        holder = orjson.loads(content)
        age_min = (time.time() - holder["since"]) / 60
        return f"pid {holder['pid']}, session {holder['session']}, started {age_min:.0f} min ago"
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "a process holds the lock and did not say who it is"
