"""
Where the memory of one GPU goes. Every failure for want of memory is a sum in here that does not work out.

    total = context + tenant + weights + non-torch + activation peak + CUDA graphs + KV cache + what utilisation leaves

The KV cache takes what is left below utilisation; all else must fit beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from k3lib.knowledge.capacity import GIB, activation_bytes, weight_bytes
from k3lib.knowledge.kv_pool import KvPool, plan_kv_pool
from k3lib.rehearsal.config import EngineConfig, Stage

MIB = 1 << 20
TENANT_PID = 4121


@dataclass(frozen=True)
class OutOfMemory:
    """
    An allocation that did not fit.

    Args:
        rank: GPU it happened on.
        vendor: `nvidia` or `amd`; the message begins with CUDA or HIP.
        wanted, total, free, process, torch, pools, tenant: Bytes, as in PyTorch's message; tenant belongs to another
            process.
    """

    rank: int
    vendor: str
    wanted: float
    total: float
    free: float
    process: float
    torch: float
    pools: float = 0.0
    tenant: float = 0.0

    @property
    def message(self) -> str:
        """The text of `torch.OutOfMemoryError`."""
        platform = "HIP" if self.vendor == "amd" else "CUDA"
        tenant = f"Process {TENANT_PID} has {_amount(self.tenant)} memory in use. " if self.tenant else ""
        pools = f"with {_amount(self.pools)} allocated in private pools (e.g., CUDA Graphs), " if self.pools else ""
        return (
            f"{platform} out of memory. Tried to allocate {_amount(self.wanted)}. GPU {self.rank} has a total "
            f"capacity of {_amount(self.total)} of which {_amount(self.free)} is free. {tenant}Including non-PyTorch "
            f"memory, this process has {_amount(self.process)} memory in use. Of the allocated memory "
            f"{_amount(self.torch)} is allocated by PyTorch, {pools}and {_amount(0.004 * self.torch)} is reserved by "
            "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
            "Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-"
            "alloc-conf)"
        )


def _amount(size: float) -> str:
    """Bytes as PyTorch prints them."""
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.2f} MiB"


@dataclass(frozen=True)
class MemoryPlan:
    """
    The memory of one rank, bytes.

    Args:
        vendor: Of the GPU.
        ranks: GPUs of this engine.
        total: What the GPU has.
        context: Held before the engine asks.
        weights, non_torch, activation, graphs: What the engine takes or reserves; graphs are the estimate.
        captured: What the graphs really take.
        requested: total × utilisation.
        available: For the KV cache; may be negative, as in the log.
        tenant: What another process holds on `tenant_ranks`, from the start or only while the weights load.
        tenant_ranks, tenant_at_start: Where, and since when.
        first_forward: Outside the pool, from the first request on.
        per_context_token, per_sequence: Outside the pool, in a step.
    """

    vendor: str
    ranks: int
    total: float
    context: float
    weights: float
    non_torch: float
    activation: float
    graphs: float
    captured: float
    requested: float
    available: float
    tenant: float
    tenant_ranks: frozenset[int]
    tenant_at_start: bool
    first_forward: float
    per_context_token: float
    per_sequence: float

    @property
    def free_at_start(self) -> float:
        """Free when the engine looks for the first time, on a GPU of its own."""
        return self.total - self.context

    @property
    def free_while_serving(self) -> float:
        """Left once weights, KV cache and graphs stand and the activation peak is kept by PyTorch's cache."""
        return self.free_at_start - self._torch - self.non_torch

    @property
    def _torch(self) -> float:
        return self.weights + self.activation + self.captured + max(0.0, self.available)

    @property
    def error_of_graphs(self) -> float:
        """By how much the captured graphs exceed their estimate, a fraction of what they took."""
        return (self.captured - self.graphs) / self.captured if self.captured else 0.0

    def tenant_on(self, rank: int) -> float:
        """What another process holds on one GPU."""
        return self.tenant if rank in self.tenant_ranks else 0.0

    def free_on(self, rank: int) -> float:
        """Free on one GPU when the engine looks for the first time."""
        return self.free_at_start - (self.tenant_on(rank) if self.tenant_at_start else 0.0)

    def every_rank(self, wanted: float, free: float, *, pools: float = 0.0) -> list[OutOfMemory]:
        """The same failure on all ranks, `free` bytes being left of each GPU."""
        used, free = self.total - max(0.0, free), max(0.0, free)
        torch = used - self.non_torch - self.context
        return [
            OutOfMemory(rank, self.vendor, wanted, self.total, free, used, torch, pools) for rank in range(self.ranks)
        ]


def plan_memory(config: EngineConfig, stage: Stage) -> MemoryPlan:
    """
    Add it up for one rank.

    Args:
        config: Effective configuration.
        stage: Machine and scenario.
    """
    facts, changes = config.facts, stage.changes
    total = stage.machine.gpu.memory_gib * GIB
    weights = weight_bytes(facts, config.layout)
    activation = activation_bytes(facts, config.max_num_batched_tokens) * changes.activation_factor
    graphs = 0.0 if config.enforce_eager else float(facts.graph_bytes)
    requested = total * config.utilization
    available = requested - weights - facts.non_torch_bytes - activation - graphs
    left = _left_for_cache(config, stage)
    if left is not None:
        activation, available = activation + available - left, left
    if config.kv_cache_memory_bytes:
        available = float(config.kv_cache_memory_bytes)
    ranks = config.layout.gpus
    first_forward = facts.first_forward_bytes if changes.first_forward_gib is None else changes.first_forward_gib * GIB
    return MemoryPlan(
        vendor=stage.machine.gpu.vendor,
        ranks=ranks,
        total=total,
        context=stage.machine.context_gib * GIB,
        weights=weights,
        non_torch=float(facts.non_torch_bytes),
        activation=activation,
        graphs=graphs,
        captured=graphs * changes.graph_factor,
        requested=requested,
        available=available,
        tenant=changes.tenant_gib * GIB,
        tenant_ranks=frozenset(range(ranks) if changes.tenant_ranks == "all" else {stage.seed % ranks}),
        tenant_at_start=changes.tenant_since == "start",
        first_forward=float(first_forward),
        per_context_token=changes.context_mib_per_token * MIB,
        per_sequence=changes.sequence_gib * GIB,
    )


def _left_for_cache(config: EngineConfig, stage: Stage) -> float | None:
    """What a scenario's profiling peak leaves for the KV cache, bytes; None where it leaves what there is."""
    changes = stage.changes
    if changes.kv_left_requests is not None:
        pool = plan_kv_pool(config.facts, config.layout, config.cache, 0)
        return pool.needed_bytes * changes.kv_left_requests
    return None if changes.kv_left_gib is None else changes.kv_left_gib * GIB


def plan_pool(config: EngineConfig, plan: MemoryPlan) -> KvPool:
    """
    The KV pool, with `--max-model-len auto` shrunk to what fits and `--num-gpu-blocks-override` applied.
    """
    pool = plan_kv_pool(config.facts, config.layout, config.cache, plan.available)
    if config.auto_length and 0 < pool.longest_request_tokens < config.cache.max_model_len:
        shorter = replace(config.cache, max_model_len=pool.longest_request_tokens)
        pool = plan_kv_pool(config.facts, config.layout, shorter, plan.available)
    return replace(pool, blocks=config.num_blocks_override) if config.num_blocks_override else pool


def find_occupied_ranks(plan: MemoryPlan) -> list[int]:
    """Ranks whose GPU has less free than utilisation asks for, before any weight."""
    return [rank for rank in range(plan.ranks) if plan.free_on(rank) < plan.requested]


def find_weight_failures(plan: MemoryPlan, layers: int) -> list[OutOfMemory]:
    """
    Allocate the weights layer by layer on every rank; the allocations that do not fit.

    A layer's experts come as two tensors, gate with up (two thirds) and down; the first that does not fit is reported.

    Args:
        plan: Memory of a rank.
        layers: Layers with experts.
    """
    layer = plan.weights / layers
    return list(_find_layer_failures(plan, layer))


def _find_layer_failures(plan: MemoryPlan, layer: float) -> Iterable[OutOfMemory]:
    for rank in range(plan.ranks):
        tenant = plan.tenant_on(rank)
        room = plan.free_at_start - tenant
        if plan.weights <= room:
            continue
        held = room // layer * layer
        wanted = layer * 2 / 3
        if room - held >= wanted:
            held, wanted = held + wanted, layer / 3
        process = held + plan.context
        yield OutOfMemory(rank, plan.vendor, wanted, plan.total, room - held, process, held, tenant=tenant)


def find_profiling_failures(plan: MemoryPlan) -> list[OutOfMemory]:
    """The activation peak of the longest batch, if it does not fit beside the weights."""
    free = plan.free_at_start - plan.weights - plan.non_torch
    # A peak is many tensors: the one that fails is a part of it, and those before it are gone from the free memory.
    part = plan.activation / 8
    return plan.every_rank(part, free % part) if plan.activation > free else []


def find_graph_failures(plan: MemoryPlan) -> list[OutOfMemory]:
    """The captured graphs, if they do not fit beside weights, activations and KV cache."""
    if plan.free_while_serving >= 0:
        return []
    free = plan.free_while_serving + plan.captured
    part = plan.captured / 16
    return plan.every_rank(part, free % part, pools=free - free % part)


def find_step_failures(plan: MemoryPlan, sequences: int, context_tokens: int) -> list[OutOfMemory]:
    """
    The workspace of one forward pass outside the pool, if it does not fit.

    Args:
        plan: Memory of a rank.
        sequences: Running requests.
        context_tokens: Where the furthest chunk of a prompt ends.
    """
    wanted = plan.first_forward + plan.per_sequence * sequences + plan.per_context_token * context_tokens
    if wanted <= plan.free_while_serving:
        return []
    return plan.every_rank(wanted, plan.free_while_serving, pools=plan.captured)
