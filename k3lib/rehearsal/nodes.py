"""
How the nodes of one engine meet: the head listens, the others come and stay connected.

A connection is all there is: the head computes for everybody. It is open while the other node lives, so each side sees
at once that the other is gone, where real ranks would see nothing and wait. The head reads a line with the number of
ranks that came; the line it sends back says that all are there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from k3lib.rehearsal.placement import Placement

_RETRY_S = 0.1
_WELCOME = b"welcome\n"


class Peers:
    """
    The other nodes, as this one sees them.

    Args:
        absent: Ranks that live on them; with none there is nobody to wait for.
    """

    def __init__(self, absent: int) -> None:
        self.lost = asyncio.Event()  # set once a node that had come is gone
        self._complete = asyncio.Event()
        self._absent = absent
        if not absent:
            self._complete.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def wait(self, limit_s: float) -> bool:
        """Until all are there; False if that takes longer than `limit_s` wall seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), limit_s)
        return self._complete.is_set()

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A node that comes to the head, until it goes."""
        self._writers.add(writer)
        with contextlib.suppress(OSError, ValueError):
            self._absent -= int(await reader.readline())
            if self._absent <= 0:
                self._complete.set()
                for other in self._writers:
                    other.write(_WELCOME)
            while await reader.read(1024):
                pass
        self._writers.discard(writer)
        self.lost.set()
        writer.close()

    async def follow(self, reader: asyncio.StreamReader) -> None:
        """The head, until it goes."""
        with contextlib.suppress(OSError):
            if await reader.readline() == _WELCOME:
                self._complete.set()
            while await reader.read(1024):
                pass
        self.lost.set()

    def close(self) -> None:
        """Let the others go."""
        for writer in self._writers:
            writer.close()


@contextlib.asynccontextmanager
async def meet_peers(placement: Placement) -> AsyncIterator[Peers]:
    """
    Listen as the head, or look for it until it is there.

    Args:
        placement: Of this process; with nobody absent, there is nobody to meet.

    Yields:
        The peers; they are let go at the end.
    """
    peers = Peers(placement.absent)
    if not placement.absent:
        yield peers
    elif placement.headless:
        task = asyncio.create_task(_join(placement, peers))
        try:
            yield peers
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    else:
        server = await asyncio.start_server(peers.receive, *placement.address)
        try:
            yield peers
        finally:
            server.close()
            peers.close()


async def _join(placement: Placement, peers: Peers) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection(*placement.address)
            break
        except OSError:
            await asyncio.sleep(_RETRY_S)
    try:
        writer.write(f"{len(placement.ranks)}\n".encode())
        await peers.follow(reader)
    finally:
        writer.close()
