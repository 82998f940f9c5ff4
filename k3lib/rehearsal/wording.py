"""
What the log says: each line by its key in the words of the release that is played, and the long texts of refusals.

The lines stand in `knowledge/rehearsal_profiles.yaml`, because another release says them differently while the start
itself goes the same way.
"""

from __future__ import annotations

from typing import Any

from k3lib.knowledge.capacity import GIB
from k3lib.knowledge.kv_pool import KvPool
from k3lib.knowledge.profiles import Line, Profile
from k3lib.rehearsal.config import EngineConfig, cache_mode
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.memory import MemoryPlan

_ADVICE = "`gpu_memory_utilization` (which also controls CPU memory on the CPU backend)"
_MORE = (
    "when initializing the engine. "
    "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
)


class Wording:
    """
    Writes the log of one release.

    Args:
        journal: Where it goes.
        profile: Whose words.
    """

    def __init__(self, journal: Journal, profile: Profile) -> None:
        self._journal, self.profile = journal, profile

    def line(self, key: str, **values: Any) -> None:
        """
        Write one line, or nothing where this release has no such line.

        Args:
            key: As in the file of profiles.
            values: What fills its names in; `rank` and `local_rank` are known for a line of every rank.
        """
        line = self.profile.lines[key]
        if line is None:
            return
        if line.by in {"worker", "workers"}:
            self._say_ranks(line, values)
        elif line.by in {"stderr", "stdout"}:
            self._journal.bare(line.text.format(**values), output=line.by == "stdout")
        else:
            writers = {"supervisor": self._journal.api, "front": self._journal.front, "engine": self._journal.engine}
            writers[line.by](line.at, line.text.format(**values), line.level)

    def _say_ranks(self, line: Line, values: dict[str, Any]) -> None:
        ranks = list(enumerate(self._journal.worker_names))
        for local_rank, rank in ranks if line.by == "workers" else ranks[:1]:
            text = line.text.format(**values, rank=rank, local_rank=local_rank)
            self._journal.worker(rank, line.at, text, line.level)


def gib(size: float) -> float:
    """Bytes as vLLM prints GiB: two places, trailing zeros dropped."""
    return round(size / GIB, 2)


def engine_config(config: EngineConfig) -> str:
    """What `Initializing a V1 LLM engine` goes on with: the fields that this model has."""
    layout, cache = config.layout, config.cache
    draft = f"SpeculativeConfig(num_spec_tokens={cache.speculative_tokens})" if cache.speculative_tokens else None
    cpu = config.cpu_model is not None
    return (
        f"model='{config.model}', speculative_config={draft}, tokenizer='{config.model}', skip_tokenizer_init=False, "
        f"tokenizer_mode={'auto' if cpu else 'kimi_k3'}, revision=None, tokenizer_revision=None, "
        f"trust_remote_code={config.trust_remote_code}, dtype=torch.bfloat16, "
        f"max_seq_len={cache.max_model_len}, download_dir=None, load_format={config.load_format}, "
        f"tensor_parallel_size={layout.tensor}, pipeline_parallel_size={layout.pipeline}, "
        f"data_parallel_size={layout.data}, decode_context_parallel_size={layout.decode_context}, "
        f"quantization={None if cpu else 'mxfp4'}, "
        f"enforce_eager={config.enforce_eager}, kv_cache_dtype={cache.kv_cache_dtype}, "
        f"device_config={'cpu' if cpu else 'cuda'}, reasoning_parser='{config.reasoning_parser}', seed={config.seed}, "
        f"served_model_name={config.served_names[0]}, enable_prefix_caching={cache.prefix_caching}, "
        f"enable_chunked_prefill=True, mamba_cache_mode={cache_mode(cache)}"
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
