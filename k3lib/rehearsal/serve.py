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
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from k3lib.knowledge.capacity import KvPool
from k3lib.rehearsal import failures
from k3lib.rehearsal.api import Api
from k3lib.rehearsal.boot import Boot, announce, write_arguments, write_config, write_http
from k3lib.rehearsal.cache_info import effective_cache_settings
from k3lib.rehearsal.clock import ModelClock
from k3lib.rehearsal.config import ConfigFailure, EngineConfig, Stage, resolve_config, worker_names
from k3lib.rehearsal.engine import Engine
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.memory import plan_memory
from k3lib.rehearsal.metrics import Metrics
from k3lib.rehearsal.statistics import report_statistics
from k3lib.rehearsal.wire import Connection

_LINGER_S = 0.5  # how long a dead engine's API server still answers 500 and 503 before it ends
_LISTEN_BACKLOG = 2048


async def run_server(values: Mapping[str, Any], environment: Mapping[str, str], stage: Stage) -> int:
    """
    Start and serve until something ends it.

    Args:
        values: As `parse_arguments` gives them.
        environment: Variables of this process.
        stage: Machine, scenario, seed and speeds.

    Returns:
        The exit code.
    """
    clock = ModelClock(stage.start_speed, stage.serve_speed)
    journal = Journal(clock, [])
    announce(journal, stage, values["model"])
    write_arguments(journal, values, environment)
    try:
        config = resolve_config(values, environment, stage.machine)
    except ConfigFailure as error:
        failures.write_config_failure(journal, str(error))
        return 1
    journal.worker_names = worker_names(config.layout)
    try:
        door = _bind(config.host, config.port)
    except OSError as error:
        failures.write_bind_failure(journal, error)
        return 1
    with door:
        return await Server(config, stage, clock, journal, door).run()


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
    One engine behind one door.

    Args:
        config, stage, clock, journal: What runs, on what, its time and its log.
        door: Bound, not yet listening.
    """

    def __init__(
        self, config: EngineConfig, stage: Stage, clock: ModelClock, journal: Journal, door: socket.socket
    ) -> None:
        self._config, self._stage, self._clock, self._journal, self._door = config, stage, clock, journal, door
        self._stop = asyncio.Event()
        self._plan = plan_memory(config, stage)

    async def run(self) -> int:
        """From the first config line to the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        async with _engine_process(self._stage, self._journal) as killed:
            try:
                pool = await self._start(killed)
            except failures.StartFailure as failure:
                failures.write_start_failure(self._journal, failure)
                return 1
            if pool is None:
                failures.write_shutdown(self._journal)
                return 0
            return await self._serve(pool, killed)

    async def _start(self, killed: asyncio.Event) -> KvPool | None:
        """The pool of a ready engine, or None if the stop came first."""
        work = asyncio.create_task(self._boot())
        ends = [asyncio.create_task(event.wait()) for event in (self._stop, killed)]
        try:
            await asyncio.wait({work, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                return None
            if killed.is_set():
                raise failures.StartFailure(killed=True)
            return await work
        finally:
            for task in (work, *ends):
                task.cancel()
            await asyncio.gather(work, *ends, return_exceptions=True)

    async def _boot(self) -> KvPool:
        steps = self._config.facts.startup_s
        await self._clock.pass_time(steps["arguments"] + steps["config"])
        write_config(self._journal, self._config)
        return await Boot(self._journal, self._clock, self._config, self._stage, self._plan).run()

    async def _serve(self, pool: KvPool, killed: asyncio.Event) -> int:
        config, journal = self._config, self._journal
        await self._clock.pass_time(config.facts.startup_s["api"])
        self._clock.begin_serving()
        metrics = Metrics(config.served_names[0], pool.max_model_len)
        metrics.set_cache_config(effective_cache_settings(config, pool))
        engine = Engine(config, self._stage, self._plan, pool, self._clock, metrics)
        api = Api(config, engine, metrics, journal, seed=self._stage.seed)
        write_http(journal, config, api.route_lines())
        connections: set[Connection] = set()
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(api.handle, api.report, connections), sock=self._door, backlog=_LISTEN_BACKLOG
        )
        journal.uvicorn(f"Started server process [{os.getpid()}]")
        journal.uvicorn("Waiting for application startup.")
        journal.uvicorn("Application startup complete.")
        await self._live(engine, killed)
        await _close(server, connections)
        journal.uvicorn("Shutting down")
        journal.uvicorn("Waiting for application shutdown.")
        journal.uvicorn("Application shutdown complete.")
        journal.uvicorn(f"Finished server process [{os.getpid()}]")
        return 0

    async def _live(self, engine: Engine, killed: asyncio.Event) -> None:
        """Run the engine until a stop, a kill or a failure of its own, and write how it ended."""
        steps = asyncio.create_task(engine.run())
        report = asyncio.create_task(report_statistics(engine, self._config, self._clock, self._journal))
        ends = [asyncio.create_task(event.wait()) for event in (self._stop, killed)]
        await asyncio.wait({steps, *ends}, return_when=asyncio.FIRST_COMPLETED)
        stopped = self._stop.is_set()
        for task in (report, *ends, *([] if steps.done() else [steps])):
            task.cancel()
        (error,) = await asyncio.gather(steps, return_exceptions=True)
        if stopped:
            failures.write_shutdown(self._journal)
            return engine.die()
        if isinstance(error, failures.RuntimeFailure):
            failures.write_execution_failure(self._journal, engine.failed_ranks)
        elif isinstance(error, BaseException) and not killed.is_set():
            raise error  # a slip of ours must not pass for a death of the engine
        engine.die()
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


@contextlib.asynccontextmanager
async def _engine_process(stage: Stage, journal: Journal) -> AsyncIterator[asyncio.Event]:
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
