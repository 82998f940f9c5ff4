"""
Memory of the CPU build: nothing is profiled, the cache gets what VLLM_CPU_KVCACHE_SPACE says.

The tiny models it serves have one linear-attention group per layer of attention, so a block is a block for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from k3lib.knowledge.capacity import GIB
from k3lib.knowledge.kv_pool import KvPool, state_blocks_per_group
from k3lib.knowledge.profiles import CpuModel
from k3lib.rehearsal.config import EngineConfig
from k3lib.rehearsal.memory import MemoryPlan

_RAM_BYTES = 16.0 * GIB


def plan_cpu_memory(config: EngineConfig, plan: MemoryPlan) -> MemoryPlan:
    """The same plan without a GPU: nothing but the cache counts."""
    return replace(
        plan,
        total=_RAM_BYTES,
        context=0.0,
        weights=0.0,
        non_torch=0.0,
        activation=0.0,
        graphs=0.0,
        captured=0.0,
        requested=float(config.cpu_cache_bytes),
        available=float(config.cpu_cache_bytes),
        first_forward=0.0,
    )


def plan_cpu_pool(config: EngineConfig, model: CpuModel) -> KvPool:
    """
    The pool of a tiny model.

    Args:
        config: Effective configuration; `cpu_cache_bytes` is what the cache may take.
        model: Its geometry.
    """
    states = model.linear_groups * state_blocks_per_group(0, config.cache.prefix_caching, checkpoint=False)
    return KvPool(
        blocks=config.num_blocks_override or config.cpu_cache_bytes // model.block_bytes,
        block_tokens=model.block_tokens,
        block_bytes=model.block_bytes,
        blocks_per_request=ceil(config.cache.max_model_len / model.block_tokens) + states,
        max_model_len=config.cache.max_model_len,
        state_blocks=states,
        state_groups=model.linear_groups,
    )
