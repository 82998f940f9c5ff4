"""
The long lines of vLLM 0.33.0, word for word; the short ones stand in `boot.py` where they are written.

Kept apart because another release says them differently while the start itself goes the same way.
"""

from __future__ import annotations

from k3lib.knowledge.capacity import GIB, KvPool
from k3lib.rehearsal.arguments import VERSION
from k3lib.rehearsal.config import EngineConfig, cache_mode
from k3lib.rehearsal.memory import MemoryPlan

_LOGO = """
       █     █     █▄   ▄█
 ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}
  █▄█▀ █     █     █     █  model   {model}
   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀
"""
_ADVICE = "`gpu_memory_utilization` (which also controls CPU memory on the CPU backend)"
_MORE = (
    "when initializing the engine. "
    "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
)


def banner(model: str) -> str:
    """Milestone 1, vllm/entrypoints/common/startup.py:16-40."""
    return _LOGO.format(version=VERSION, model=model)


def gib(size: float) -> float:
    """Bytes as vLLM prints GiB: two places, trailing zeros dropped."""
    return round(size / GIB, 2)


def initializing(config: EngineConfig) -> str:
    """Milestone 6, v1/engine/core.py:140; the fields that this model has."""
    layout, cache = config.layout, config.cache
    draft = f"SpeculativeConfig(num_spec_tokens={cache.speculative_tokens})" if cache.speculative_tokens else None
    return (
        f"Initializing a V1 LLM engine (v{VERSION}) with config: model='{config.model}', "
        f"speculative_config={draft}, tokenizer='{config.model}', skip_tokenizer_init=False, "
        "tokenizer_mode=kimi_k3, revision=None, tokenizer_revision=None, "
        f"trust_remote_code={config.trust_remote_code}, dtype=torch.bfloat16, "
        f"max_seq_len={cache.max_model_len}, download_dir=None, load_format={config.load_format}, "
        f"tensor_parallel_size={layout.tensor}, pipeline_parallel_size={layout.pipeline}, "
        f"data_parallel_size={layout.data}, decode_context_parallel_size=1, quantization=mxfp4, "
        f"enforce_eager={config.enforce_eager}, kv_cache_dtype={cache.kv_cache_dtype}, device_config=cuda, "
        f"reasoning_parser='{config.reasoning_parser}', seed={config.seed}, "
        f"served_model_name={config.served_names[0]}, enable_prefix_caching={cache.prefix_caching}, "
        f"enable_chunked_prefill=True, mamba_cache_mode={cache_mode(cache)}"
    )


def gpu_is_occupied(config: EngineConfig, plan: MemoryPlan) -> str:
    """v1/worker/utils.py:763: less free than asked for, before any weight."""
    return (
        f"ValueError: Free memory on device cuda:0 ({gib(plan.free_at_start)}/{gib(plan.total)} GiB) on startup is "
        f"less than desired GPU memory utilization ({config.utilization}, {gib(plan.requested)} GiB). "
        "Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )


def no_kv_memory() -> str:
    """v1/core/kv_cache_planning.py:57: nothing is left."""
    return f"ValueError: No available memory for the cache blocks. Try increasing {_ADVICE} {_MORE}"


def kv_too_small(pool: KvPool, available_bytes: float) -> str:
    """v1/core/kv_cache_planning.py:77: something is left, but not one request of the maximum length."""
    return (
        "ValueError: To serve at least one request with the model's max seq len "
        f"({pool.max_model_len}), ({gib(pool.needed_bytes)} GiB KV cache is needed, which is larger than the available "
        f"KV cache memory ({gib(available_bytes)} GiB). Based on the available memory, the estimated maximum model "
        f"length is {pool.longest_request_tokens}. Try increasing {_ADVICE} or decreasing `max_model_len` {_MORE}"
    )


def bad_retention_interval(interval: int, block_tokens: int) -> str:
    """v1/core/kv_cache_coordinator.py:57."""
    return (
        f"ValueError: prefix_cache_retention_interval ({interval}) must be non-negative and a multiple of "
        f"scheduler_block_size ({block_tokens})."
    )


def kv_size(pool: KvPool) -> str:
    """Milestone 20, v1/core/kv_cache_utils.py:1146."""
    return (
        f"GPU KV cache size: {pool.tokens:,} tokens, Maximum concurrency for {pool.max_model_len:,} tokens per "
        f"request: {pool.max_concurrency:.2f}x"
    )


def memory_summary(config: EngineConfig, plan: MemoryPlan) -> str:
    """Milestone 22, v1/worker/gpu_worker.py:1045: information, though it opens like the error."""
    spare = plan.available + plan.free_at_start - plan.requested
    return (
        f"Free memory on device ({gib(plan.free_at_start)}/{gib(plan.total)} GiB) on startup. "
        f"Desired GPU memory utilization is ({config.utilization}, {gib(plan.requested)} GiB). "
        f"Actual usage is {gib(plan.weights + plan.non_torch)} GiB for consumed memory (weights + non-torch), "
        f"{gib(plan.activation)} GiB for peak activation, and {gib(plan.graphs)} GiB for CUDAGraph memory. "
        f"Replace gpu_memory_utilization config with `--kv-cache-memory={int(plan.available)}` "
        f"({gib(plan.available)} GiB) to fit into requested memory, or `--kv-cache-memory={int(spare)}` "
        f"({gib(spare)} GiB) to fully utilize gpu memory. "
        f"Current kv cache memory in use is {gib(plan.available)} GiB."
    )


def shard_progress(done: int, total: int, shard_s: float) -> str:
    """
    Milestone 12, model_executor/model_loader/weight_utils.py:1130: one line of the progress bar.

    >>> shard_progress(0, 96, 12.5)
    'Loading safetensors checkpoint shards:   0% Completed | 0/96 [00:00<?, ?it/s]'
    """
    spent, left = _minutes(done * shard_s), _minutes((total - done) * shard_s)
    rate = f"{shard_s:5.2f}s/it" if done else "?it/s"
    bar = f"Loading safetensors checkpoint shards: {100 * done / total:3.0f}% Completed | {done}/{total}"
    return f"{bar} [{spent}<{left if done else '?'}, {rate}]"


def graph_progress(kind: str, count: int, took_s: float) -> str:
    """Milestone 21, the last state of one progress bar."""
    return (
        f"Capturing CUDA graphs ({kind}): 100%|██████████| {count}/{count} "
        f"[{_minutes(took_s)}<00:00, {count / took_s:5.2f}it/s]"
    )


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
