"""A node that answers no HTTP: it starts its ranks, then lives as long as the head does."""

from __future__ import annotations

import asyncio

from k3lib.rehearsal import failures
from k3lib.rehearsal.boot import write_headless
from k3lib.rehearsal.nodes import Peers, meet_peers
from k3lib.rehearsal.scene import Scene
from k3lib.rehearsal.starting import start_engine


async def run_headless(scene: Scene, stop: asyncio.Event) -> int:
    """
    Start this node's ranks and wait for the end.

    Args:
        scene: This node.
        stop: Set when somebody asks for the end.

    Returns:
        vLLM's exit code: 0 after an end, the head's or its own, 1 if the ranks never came up.
    """
    write_headless(scene.journal, scene.config, scene.say.profile.version)
    async with meet_peers(scene.config.placement) as peers:
        try:
            pool = await start_engine(scene, peers, stop, asyncio.Event())
        except failures.StartFailure as failure:
            failures.write_node_failure(scene.journal, failure)
            return 1
        if pool is not None:
            await _wait_for_end(peers, stop)
        failures.write_node_shutdown(scene.journal)
        return 0


async def _wait_for_end(peers: Peers, stop: asyncio.Event) -> None:
    ends = [asyncio.create_task(event.wait()) for event in (stop, peers.lost)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in ends:
        task.cancel()
    await asyncio.gather(*ends, return_exceptions=True)
