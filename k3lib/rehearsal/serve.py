"""
The whole engine in one process: start, serve, and every way it ends.

Exit codes are vLLM's: 1 if the engine never got ready, 0 after an asked-for stop, and 0 too after a death while
serving.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from typing import Any

from k3lib.knowledge.faults import find_fault
from k3lib.knowledge.kv_pool import KvPool
from k3lib.rehearsal import failures
from k3lib.rehearsal.api import Api
from k3lib.rehearsal.boot import announce, write_arguments, write_http
from k3lib.rehearsal.cache_info import effective_cache_settings
from k3lib.rehearsal.clock import ModelClock
from k3lib.rehearsal.config import Stage, resolve_config
from k3lib.rehearsal.cpu import plan_cpu_memory
from k3lib.rehearsal.engine import Engine
from k3lib.rehearsal.fleet import Fleet
from k3lib.rehearsal.headless import run_headless
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.memory import plan_memory
from k3lib.rehearsal.metrics import Families, Metrics
from k3lib.rehearsal.nodes import Peers, meet_peers
from k3lib.rehearsal.placement import ConfigFailure, engine_names, worker_names
from k3lib.rehearsal.profiles import read_profile
from k3lib.rehearsal.scene import Scene
from k3lib.rehearsal.starting import engine_process, start_engine
from k3lib.rehearsal.statistics import report_statistics
from k3lib.rehearsal.wire import Connection
from k3lib.rehearsal.wording import Wording

_LINGER_S = 0.5  # how long a dead engine's API server still answers 500 and 503 before it ends
_LISTEN_BACKLOG = 2048


async def run_server(values: Mapping[str, Any], stage: Stage) -> int:
    """
    Start and serve until something ends it.

    Args:
        values: As `parse_arguments` gives them.
        stage: Machine, scenario, seed, speeds and variables.

    Returns:
        The exit code.
    """
    clock = ModelClock(stage.start_speed, stage.serve_speed)
    profile = read_profile(stage.variables)
    journal = Journal(clock, profile.front_end)
    say = Wording(journal, profile)
    announce(journal, stage, values["model"])
    write_arguments(say, values, stage.variables)
    fault = find_fault(stage.changes.fault) if stage.changes.fault else None
    if fault and fault.point == "detect":
        failures.write_platform_failure(journal, fault)
        return 1
    try:
        config = resolve_config(values, stage.variables, stage.machine)
    except ConfigFailure as error:
        failures.write_config_failure(journal, str(error))
        return 1
    journal.worker_names = worker_names(config.layout, config.placement)
    journal.engine_names = engine_names(config.layout, config.placement)
    plan = plan_memory(config, stage)
    plan = plan_cpu_memory(config, plan) if config.cpu_model else plan
    return await _run_scene(Scene(config, stage, plan, clock, journal, say))


async def _run_scene(scene: Scene) -> int:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if scene.config.placement.headless:
        return await run_headless(scene, stop)
    try:
        door = _bind(scene.config.host, scene.config.port)
    except OSError as error:
        failures.write_bind_failure(scene.journal, error)
        return 1
    with door:
        return await Server(scene, door, stop).run()


def _bind(host: str, port: int) -> socket.socket:
    """Take the port before the engine starts; it opens after, as in vLLM, so nobody meets a half-started engine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((host, port))
    except OSError:
        door.close()
        raise
    return door


class Server:
    """
    The head: engines behind one door.

    Args:
        scene: What runs.
        door: Bound, not yet listening.
        stop: Set when somebody asks for the end.
    """

    def __init__(self, scene: Scene, door: socket.socket, stop: asyncio.Event) -> None:
        self._scene, self._door, self._stop = scene, door, stop
        self._config, self._journal = scene.config, scene.journal

    async def run(self) -> int:
        """From the first config line to the exit code."""
        scene = self._scene
        async with engine_process(scene.stage, scene.journal) as killed, meet_peers(self._config.placement) as peers:
            try:
                pool = await start_engine(scene, peers, self._stop, killed)
            except failures.StartFailure as failure:
                failures.write_start_failure(self._journal, failure)
                return 1
            if pool is None:
                failures.write_shutdown(self._journal)
                return 0
            return await self._serve(pool, killed, peers)

    async def _serve(self, pool: KvPool, killed: asyncio.Event, peers: Peers) -> int:
        config, scene, say = self._config, self._scene, self._scene.say
        await scene.clock.pass_time(config.facts.startup_s["api"])
        scene.clock.begin_serving()
        families = Families(config.profile, config.served_names[0], pool.max_model_len)
        fleet = self._make_fleet(pool, families)
        api = Api(config, fleet, families, self._journal, say, scene.stage)
        connections: set[Connection] = set()
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(api.handle, api.report, connections), sock=self._door, backlog=_LISTEN_BACKLOG
        )
        write_http(say, config, api.route_lines())
        await self._live(fleet, killed, peers)
        await _close(server, connections)
        say.line("server-stopping")
        say.line("server-closing")
        say.line("server-stopped")
        say.line("server-ended", pid=os.getpid())
        return 0

    def _make_fleet(self, pool: KvPool, families: Families) -> Fleet:
        """An engine for each data-parallel rank, also for those whose ranks are on other nodes."""
        scene, engines = self._scene, []
        for rank in range(self._config.layout.data):
            families.set_cache_config(effective_cache_settings(self._config, pool), str(rank))
            metrics = Metrics(families, str(rank))
            engines.append(Engine(self._config, scene.stage, scene.plan, pool, scene.clock, metrics))
        return Fleet(engines)

    async def _live(self, fleet: Fleet, killed: asyncio.Event, peers: Peers) -> None:
        """Run the engines until a stop, a kill or a failure of their own, and write how it ended."""
        steps = asyncio.create_task(fleet.run())
        others = [
            asyncio.create_task(report_statistics(engine, self._config, self._scene.clock, self._scene.say, rank))
            for rank, engine in enumerate(fleet.engines)
        ]
        others.append(asyncio.create_task(fleet.stall_after(peers.lost)))
        ends = [asyncio.create_task(event.wait()) for event in (self._stop, killed)]
        await asyncio.wait({steps, *ends}, return_when=asyncio.FIRST_COMPLETED)
        stopped = self._stop.is_set()
        for task in (*others, *ends, *([] if steps.done() else [steps])):
            task.cancel()
        error, *_ = await asyncio.gather(steps, *others, *ends, return_exceptions=True)
        if stopped:
            failures.write_shutdown(self._journal)
            return fleet.die()
        if isinstance(error, failures.RuntimeFailure):
            failures.write_execution_failure(self._journal, error)
        elif isinstance(error, BaseException) and not killed.is_set():
            raise error  # a slip of ours must not pass for a death of the engine
        fleet.die()
        failures.write_engine_lost(self._journal, killed=killed.is_set())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), _LINGER_S)


async def _close(server: asyncio.Server, connections: set[Connection]) -> None:
    """Stop listening, let the answers in flight leave, then close what is open."""
    server.close()
    await asyncio.sleep(0.02)
    for connection in list(connections):
        connection.close()
    await asyncio.sleep(0)
