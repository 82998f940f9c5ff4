"""
The engines of one API server: one for each data-parallel rank, each with a pool of its own.

A request goes to the engine with the least in work and in its queue, as vLLM's front end balances; when one engine
dies, all do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from k3lib.knowledge.kv_pool import KvPool
from k3lib.rehearsal.engine import Engine
from k3lib.rehearsal.request import Request


class Fleet:
    """
    Engines behind one door.

    Args:
        engines: In order of their rank, at least one.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = tuple(engines)
        self._place: dict[Request, Engine] = {}

    @property
    def pool(self) -> KvPool:
        """The pool of one engine; all are alike."""
        return self.engines[0].pool

    @property
    def dead(self) -> bool:
        """Whether an engine died, and with it all."""
        return any(engine.dead for engine in self.engines)

    @property
    def load(self) -> int:
        """Requests in work and in queues."""
        return sum(len(engine.running) + len(engine.waiting) for engine in self.engines)

    def submit(self, request: Request) -> None:
        """
        Queue a request at the engine with the least to do.

        Raises:
            RuntimeFailure: The engines are dead.
        """
        engine = min(self.engines, key=lambda one: len(one.running) + len(one.waiting))
        engine.submit(request)
        self._place[request] = engine

    def abort(self, request: Request) -> None:
        """Forget a request, whether it is done or its client went away."""
        self._place.pop(request).abort(request)

    def reset_prefix_cache(self) -> bool:
        """Drop what is cached; False where an engine has requests that hold blocks."""
        dropped = [engine.blocks.forget() for engine in self.engines]
        return all(dropped)

    def die(self) -> None:
        """End everything in flight."""
        for engine in self.engines:
            engine.die()

    async def stall_after(self, lost: asyncio.Event) -> None:
        """Once another node is gone, no forward pass ends any more."""
        await lost.wait()
        for engine in self.engines:
            engine.stalled.set()

    async def run(self) -> None:
        """
        Run all engines until one fails.

        Raises:
            RuntimeFailure: The first failure.
        """
        tasks = [asyncio.create_task(engine.run()) for engine in self.engines]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
