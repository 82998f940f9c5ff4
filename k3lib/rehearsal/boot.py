"""
The start of the engine: milestones in vLLM 0.33.0's order and words, each after the time the model gives it.

The Python front end and the V2 model runner. `info_once` lines stand once; `world_size`, `Model loading took` and graph
capture stand once per rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k3lib.knowledge.capacity import GIB, KvPool, kda_groups, padding_layers, state_padding_fraction
from k3lib.rehearsal import wording
from k3lib.rehearsal.arguments import non_default_arguments, unknown_variables
from k3lib.rehearsal.clock import ModelClock
from k3lib.rehearsal.config import EngineConfig, Stage, cache_mode
from k3lib.rehearsal.failures import StartFailure
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.memory import MemoryPlan, find_weight_failures, plan_pool

_GPUS_PER_NODE = 8
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


def write_arguments(journal: Journal, values: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Milestones 1 and 2: banner, arguments, and variables this release does not know."""
    journal.api("startup.py:40", wording.banner(values["model"]))
    journal.api("startup.py:96", f"non-default args: {non_default_arguments(values)}")
    for name in unknown_variables(environment):
        journal.api("interface.py:1470", f"Unknown vLLM environment variable detected: {name}", "WARNING")


def write_config(journal: Journal, config: EngineConfig) -> None:
    """Milestones 3 to 5: the model is known, its length, its cache mode."""
    name, mode = config.facts.architecture, cache_mode(config.cache)
    journal.api("model.py:744", f"Resolved architecture: {name}")
    journal.api("model.py:2170", f"Using max model len {config.cache.max_model_len}")
    text = f"Mamba cache mode is set to '{mode}'"
    if config.cache.prefix_caching:
        journal.api("config.py:767", f"{text} for {name} by default when prefix caching is enabled")
    else:
        journal.api("config.py:784", f"{text} when prefix caching is disabled", "WARNING")
    budget = config.max_num_batched_tokens
    journal.api("scheduler.py:263", f"Chunked prefill is enabled with max_num_batched_tokens={budget}.")


def write_http(journal: Journal, config: EngineConfig, routes: list[str]) -> None:
    """Milestone 24: the API server opens its door."""
    journal.api("entry.py:135", "Supported tasks: ['generate']")
    journal.api("entry.py:139", f"Starting vLLM server on http://{config.host}:{config.port}")
    journal.api("launcher.py:188", "Available routes are:")
    for route in routes:
        journal.api("launcher.py:197", f"Route: {route}")


class Boot:
    """
    One start. `run` either returns the pool of a ready engine or raises how it died.

    Args:
        journal, clock: Log and modelled time.
        config, stage, plan: What is started, on what, and where its memory goes.
    """

    def __init__(
        self, journal: Journal, clock: ModelClock, config: EngineConfig, stage: Stage, plan: MemoryPlan
    ) -> None:
        self._journal, self._clock = journal, clock
        self._config, self._stage, self._plan = config, stage, plan
        self._ranks = range(config.layout.gpus)

    async def run(self) -> KvPool:
        """
        Walk through the start.

        Raises:
            StartFailure: The engine died on the way; its death itself has not been logged yet.
        """
        await self._join_world()
        await self._load_weights()
        pool = await self._size_memory()
        await self._capture_graphs()
        steps = self._config.facts.startup_s
        graphs_s = 0.0 if self._config.enforce_eager else steps["capture_graphs"]
        took = steps["profile"] + steps["allocate_kv"] + graphs_s
        self._journal.engine("core.py:396", f"init engine (profile, create kv cache, warmup model) took {took:.2f} s")
        return pool

    async def _pass(self, step: str) -> None:
        await self._clock.pass_time(self._config.facts.startup_s[step])

    async def _join_world(self) -> None:
        config, journal, world = self._config, self._journal, self._config.layout.gpus
        await self._pass("engine_process")
        journal.engine("core.py:140", wording.initializing(config))
        await self._pass("distributed")
        rendezvous = "distributed_init_method=tcp://127.0.0.1:51513 backend=nccl"
        journal.workers(
            "parallel_state.py:1930",
            [f"world_size={world} rank={rank} local_rank={rank % _GPUS_PER_NODE} {rendezvous}" for rank in self._ranks],
        )
        if self._plan.free_at_start < self._plan.requested:
            raise StartFailure(core=wording.gpu_is_occupied(config, self._plan))
        if self._stage.machine.gpu.vendor == "nvidia":
            journal.worker(0, "pynccl.py:148", "vLLM is using nccl==2.30.7")
            journal.worker(0, "kda.py:523", "Using FlashKDA KDA prefill backend.")

    async def _load_weights(self) -> None:
        config, journal, steps = self._config, self._journal, self._config.facts.startup_s
        journal.worker(0, "model_runner.py:399", "Loading model from scratch...")
        await self._pass("create_weights")
        failures = find_weight_failures(config, self._stage, self._plan)
        if failures:
            raise StartFailure(ranks=tuple(failures))
        read_s = 0.0 if config.load_format == "dummy" else await self._read_shards()
        await self._pass("process_weights")
        took_s = read_s + steps["create_weights"] + steps["process_weights"]
        size = wording.gib(self._plan.weights)
        journal.workers(
            "model_runner.py:429",
            [f"Model loading took {size} GiB memory and {took_s:.6f} seconds" for _ in self._ranks],
        )

    async def _read_shards(self) -> float:
        facts, journal = self._config.facts, self._journal
        size = facts.checkpoint_bytes / GIB
        where = f"Filesystem type for checkpoints: EXT4. Checkpoint size: {size:.2f} GiB. Available RAM: 1874.21 GiB."
        journal.worker(0, "weight_utils.py:1145", where)
        total_s = facts.checkpoint_bytes / self._stage.machine.storage_bytes_per_s
        shards = facts.checkpoint_shards
        journal.bare(wording.shard_progress(0, shards, total_s / shards))
        for shard in range(1, shards + 1):
            await self._clock.pass_time(total_s / shards)
            journal.bare(wording.shard_progress(shard, shards, total_s / shards))
        journal.bare("")
        journal.worker(0, "default_loader.py:507", f"Loading weights took {total_s:.2f} seconds")
        return total_s

    async def _size_memory(self) -> KvPool:
        config, journal, plan = self._config, self._journal, self._plan
        pool = plan_pool(config, plan)
        self._write_geometry(pool)
        await self._pass("profile")
        journal.worker(0, "gpu_worker.py:773", f"Available KV cache memory: {wording.gib(plan.available)} GiB")
        self._check_pool(pool)
        await self._pass("allocate_kv")
        added, share = padding_layers(config.facts)
        padding = f"Add {added} padding layers, may waste at most {share:.2%} KV cache memory"
        journal.engine("kv_cache_planning.py:537", padding, "WARNING")
        if pool.max_model_len < config.cache.max_model_len:
            text = f"Auto-fit max_model_len: reduced from {config.cache.max_model_len} to {pool.max_model_len}"
            journal.engine("kv_cache_planning.py:1404", text)
        journal.engine("kv_cache_utils.py:1146", wording.kv_size(pool))
        sizes = ", ".join([str(pool.block_tokens)] * (1 + kda_groups(config.facts)))
        journal.engine("kv_cache_utils.py:865", f"kv cache group sizes ({sizes})")
        journal.engine("kv_cache_utils.py:866", f"kv lcm block sizes {pool.block_tokens}")
        return pool

    def _write_geometry(self, pool: KvPool) -> None:
        cache, tensor = self._config.cache, self._config.layout.tensor
        padding = state_padding_fraction(self._config.facts, tensor, cache.kv_cache_dtype, cache.speculative_tokens)
        size = f"Setting attention block size to {pool.block_tokens} tokens"
        equal = "mamba page size and attention page size are exactly equal"
        self._journal.worker(
            0, "interface.py:1109", f"{size} to ensure that attention page size is >= mamba page size."
        )
        self._journal.worker(
            0, "interface.py:1133", f"Padding mamba page size by {padding:.2%} to ensure that {equal}."
        )

    def _check_pool(self, pool: KvPool) -> None:
        interval = self._config.retention_interval
        if self._plan.available <= 0:
            raise StartFailure(core=wording.no_kv_memory())
        if pool.blocks < pool.blocks_per_request:
            raise StartFailure(core=wording.kv_too_small(pool, self._plan.available))
        if interval and self._config.cache.prefix_caching and interval % pool.block_tokens:
            raise StartFailure(core=wording.bad_retention_interval(interval, pool.block_tokens))

    async def _capture_graphs(self) -> None:
        config, journal, plan = self._config, self._journal, self._plan
        if not config.enforce_eager:
            took_s, size = config.facts.startup_s["capture_graphs"], f"{plan.graphs / GIB:.2f} GiB"
            for kind, count in _GRAPH_KINDS:
                await self._clock.pass_time(took_s / len(_GRAPH_KINDS))
                journal.bare(wording.graph_progress(kind, count, took_s / len(_GRAPH_KINDS)))
            text = f"Graph capturing finished in {took_s:.0f} secs, took {size}"
            journal.workers("model_runner.py:1164", [text for _ in self._ranks])
            pool = f"CUDA graph pool memory: {size} (actual), {size} (estimated), difference: 0.0 GiB (0.0%)."
            journal.worker(0, "gpu_worker.py:1004", pool)
        journal.worker(0, "gpu_worker.py:1045", wording.memory_summary(config, plan))
