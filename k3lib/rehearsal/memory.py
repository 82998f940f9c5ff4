"""
Where the memory of one GPU goes during a start. Every failure of a start is a sum in here that does not work out.

    total = context + weights + non-torch + activation peak + CUDA graphs + KV cache + what utilisation leaves free
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from k3lib.knowledge.capacity import GIB, KvPool, activation_bytes, plan_kv_pool, weight_bytes
from k3lib.rehearsal.config import EngineConfig, Stage


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
        tenant = f"Process 4121 has {_amount(self.tenant)} memory in use. " if self.tenant else ""
        pools = f"with {_amount(self.pools)} allocated in private pools (e.g., CUDA Graphs), " if self.pools else ""
        reserved = 0.004 * self.torch
        return (
            f"{platform} out of memory. Tried to allocate {_amount(self.wanted)}. GPU {self.rank} has a total "
            "capacity of "
            f"{_amount(self.total)} of which {_amount(self.free)} is free. {tenant}Including non-PyTorch memory, "
            "this process "
            f"has {_amount(self.process)} memory in use. Of the allocated memory {_amount(self.torch)} is allocated by "
            f"PyTorch, {pools}and {_amount(reserved)} is reserved by PyTorch but unallocated. If reserved but "
            "unallocated "
            "memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
            "documentation for Memory Management  "
            "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf)"
        )


def _amount(size: float) -> str:
    """Bytes as PyTorch prints them."""
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / (1 << 20):.2f} MiB"


@dataclass(frozen=True)
class MemoryPlan:
    """
    The memory of one rank, bytes.

    Args:
        total: What the GPU has.
        context: Held before the engine asks.
        weights, non_torch, activation, graphs: What the engine takes or reserves.
        requested: total × utilisation.
        available: For the KV cache; may be negative, as in the log.
        tenant: What another process takes on `tenant_rank` while the weights load.
        first_forward: Outside the pool, at the first request.
    """

    total: float
    context: float
    weights: float
    non_torch: float
    activation: float
    graphs: float
    requested: float
    available: float
    tenant: float
    tenant_rank: int
    first_forward: float

    @property
    def free_at_start(self) -> float:
        """Free when the engine looks for the first time."""
        return self.total - self.context

    @property
    def free_while_serving(self) -> float:
        """Left once weights, KV cache and graphs stand and the activation peak is kept by PyTorch's cache."""
        taken = self.weights + self.non_torch + self.activation + self.graphs + max(0.0, self.available)
        return self.free_at_start - taken


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
    activation = float(activation_bytes(facts, config.max_num_batched_tokens))
    graphs = 0.0 if config.enforce_eager else float(facts.graph_bytes)
    requested = total * config.utilization
    available = requested - weights - facts.non_torch_bytes - activation - graphs
    if changes.kv_left_gib is not None:
        activation += available - changes.kv_left_gib * GIB
        available = changes.kv_left_gib * GIB
    if config.kv_cache_memory_bytes:
        available = float(config.kv_cache_memory_bytes)
    first_forward = facts.first_forward_bytes if changes.first_forward_gib is None else changes.first_forward_gib * GIB
    return MemoryPlan(
        total=total,
        context=stage.machine.context_gib * GIB,
        weights=weights,
        non_torch=float(facts.non_torch_bytes),
        activation=activation,
        graphs=graphs,
        requested=requested,
        available=available,
        tenant=(changes.co_tenant_gib or 0.0) * GIB,
        tenant_rank=stage.seed % config.layout.gpus,
        first_forward=float(first_forward),
    )


def plan_pool(config: EngineConfig, plan: MemoryPlan) -> KvPool:
    """
    The KV pool, with `--max-model-len auto` shrunk to what fits and `--num-gpu-blocks-override` applied.
    """
    pool = plan_kv_pool(config.facts, config.layout, config.cache, plan.available)
    if config.auto_length and 0 < pool.longest_request_tokens < config.cache.max_model_len:
        shorter = replace(config.cache, max_model_len=pool.longest_request_tokens)
        pool = plan_kv_pool(config.facts, config.layout, shorter, plan.available)
    return replace(pool, blocks=config.num_blocks_override) if config.num_blocks_override else pool


def find_weight_failures(config: EngineConfig, stage: Stage, plan: MemoryPlan) -> list[OutOfMemory]:
    """
    Allocate the weights layer by layer on every rank; the allocations that do not fit.

    A layer's experts come as two tensors, gate with up (two thirds) and down; the first that does not fit is reported.
    """
    failures = []
    layer = plan.weights / config.facts.moe_layers
    for rank in range(config.layout.gpus):
        tenant = plan.tenant if rank == plan.tenant_rank else 0.0
        room = plan.free_at_start - tenant
        if plan.weights <= room:
            continue
        held = room // layer * layer
        wanted = layer * 2 / 3
        if room - held >= wanted:
            held, wanted = held + wanted, layer / 3
        process = held + plan.context
        vendor = stage.machine.gpu.vendor
        failures.append(OutOfMemory(rank, vendor, wanted, plan.total, room - held, process, held, tenant=tenant))
    return failures


def find_first_request_failures(config: EngineConfig, stage: Stage, plan: MemoryPlan) -> list[OutOfMemory]:
    """The allocation outside the pool at the first request, on every rank, if it does not fit."""
    if plan.first_forward <= plan.free_while_serving:
        return []
    torch = plan.weights + plan.activation + plan.graphs + plan.available
    used = torch + plan.non_torch + plan.context
    vendor = stage.machine.gpu.vendor
    free = max(0.0, plan.total - used)
    return [
        OutOfMemory(rank, vendor, plan.first_forward, plan.total, free, used, torch, pools=plan.graphs)
        for rank in range(config.layout.gpus)
    ]
