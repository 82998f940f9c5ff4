"""A start from its first config line to a ready engine, and all that may come between: a stop, a kill, the patience."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from k3lib.knowledge.kv_pool import KvPool
from k3lib.rehearsal.boot import Boot, write_config
from k3lib.rehearsal.clock import PatienceEnded
from k3lib.rehearsal.config import Stage
from k3lib.rehearsal.failures import StartFailure
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.nodes import Peers
from k3lib.rehearsal.scene import Scene


async def start_engine(scene: Scene, peers: Peers, stop: asyncio.Event, killed: asyncio.Event) -> KvPool | None:
    """
    Walk through the start.

    Args:
        scene: What is started.
        peers: The other nodes.
        stop: Set when somebody asks for the end.
        killed: Set when the engine's core was killed.

    Returns:
        The pool of a ready engine, or None if the stop came first.

    Raises:
        StartFailure: How it died; nothing of that is logged yet.
    """
    work = asyncio.create_task(_boot(scene, peers))
    ends = [asyncio.create_task(event.wait()) for event in (stop, killed, peers.lost)]
    try:
        await asyncio.wait({work, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return None
        if killed.is_set():
            raise StartFailure(killed=True)
        if peers.lost.is_set() and not work.done():
            # The ranks of this node wait in a collective for those that are gone, until the front end gives up.
            raise StartFailure(waited_s=scene.config.ready_timeout_s)
        return await work
    except PatienceEnded:
        raise StartFailure(waited_s=scene.config.ready_timeout_s) from None
    finally:
        for task in (work, *ends):
            task.cancel()
        await asyncio.gather(work, *ends, return_exceptions=True)


async def _boot(scene: Scene, peers: Peers) -> KvPool:
    steps = scene.config.facts.startup_s
    await scene.clock.pass_time(steps["arguments"] + steps["config"])
    write_config(scene.say, scene.config)
    if not scene.config.placement.headless:
        scene.clock.limit(scene.config.ready_timeout_s)
    return await Boot(scene, peers).run()


@contextlib.asynccontextmanager
async def engine_process(stage: Stage, journal: Journal) -> AsyncIterator[asyncio.Event]:
    """
    The real process that stands for the engine's core, if asked for; it ends with us.

    Yields:
        An event that is set when somebody else ended it.
    """
    killed = asyncio.Event()
    if not stage.real_child:
        yield killed
        return
    program = str(Path(__file__).with_name("child.py"))
    child = await asyncio.create_subprocess_exec("VLLM::EngineCore", "-I", "-S", program, executable=sys.executable)
    journal.engine_pid = child.pid
    watch = asyncio.create_task(child.wait())
    watch.add_done_callback(lambda _: killed.set())
    try:
        yield killed
    finally:
        if child.returncode is None:
            child.terminate()
        await watch
