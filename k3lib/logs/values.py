"""
What an engine says about itself in its log, typed, each value with the line it stands on.

The names are those of the groups in `k3lib/knowledge/milestones.yaml`; a new wording needs a pattern
there and nothing here. What a log does not say is None; `sources` tells a said `None` from silence.
"""

from __future__ import annotations

import re
from typing import Any, get_args

from pydantic import Field

from k3lib.knowledge.milestones import FrontEnd, LinePattern, Runner
from k3lib.spec.model import Fact

_MOST_TEXT = 4000
_MOST_VARIABLES = 100


class EngineValues(Fact):
    """
    The state that the log tells; units close the names, GiB as the engine prints them.

    Args:
        prefix_caching: In effect, by the engine's own config line.
        quantization: None with a source means that the engine said `None`.
        weights_gib: Weights of the fullest rank; on the V2 runner all that loading consumed.
        weights_read_s, weights_loaded_s: Reading the shards; the whole loading of the slowest rank.
        kv_available_gib: Of the poorest rank; can be negative.
        kv_cache_tokens: max_concurrency times max_model_len, so it moves with the length.
        block_size_tokens: The hybrid attention block; scheduler_block_tokens is the common multiple.
        front_end, runner: By a line that only this one prints.
        memory_consumed_gib: Weights and non-torch memory together; weights alone where memory_non_torch_gib stands.
        prefix_cache_hit_fraction: Of the last statistics line that told it.
        non_default_args: As the engine repeats them, cut at 4,000 characters. Feed redacted logs.
    """

    version: str | None = None
    model: str | None = None
    architecture: str | None = None
    max_model_len: int | None = None
    prefix_caching: bool | None = None
    mamba_cache_mode: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    decode_context_parallel: int | None = None
    world_size: int | None = None
    backend: str | None = None
    nccl_version: str | None = None
    head_address: str | None = None
    device: str | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    load_format: str | None = None
    quantization: str | None = None
    enforce_eager: bool | None = None
    seed: int | None = None
    attention_backend: str | None = None
    kda_backend: str | None = None
    all2all_manager: str | None = None
    checkpoint_gib: float | None = None
    ram_available_gib: float | None = None
    shards_read: int | None = None
    shards_total: int | None = None
    weights_download_s: float | None = None
    weights_read_s: float | None = None
    weights_gib: float | None = None
    weights_loaded_s: float | None = None
    encoder_budget_tokens: int | None = None
    kv_available_gib: float | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    block_size_tokens: int | None = None
    scheduler_block_tokens: int | None = None
    graph_capture_s: float | None = None
    graph_capture_gib: float | None = None
    init_engine_s: float | None = None
    compilation_s: float | None = None
    address: str | None = None
    front_end: FrontEnd | None = None
    runner: Runner | None = None
    memory_free_gib: float | None = None
    memory_total_gib: float | None = None
    memory_utilization_fraction: float | None = None
    memory_desired_gib: float | None = None
    memory_consumed_gib: float | None = None
    memory_activation_gib: float | None = None
    memory_non_torch_gib: float | None = None
    memory_graphs_gib: float | None = None
    prefix_cache_hit_fraction: float | None = None
    running_requests_max: int | None = None
    waiting_requests_max: int | None = None
    preemptions: int | None = None
    unknown_environment_variables: list[str] = Field(default_factory=list)
    non_default_args: str | None = None


# Ranks differ: what limits is the poorest, what costs is the slowest. Everything else: the first line that says it.
_SMALLEST = {"kv_available_gib", "kv_cache_tokens", "max_concurrency", "memory_free_gib"}
_LARGEST = {
    "weights_gib", "weights_read_s", "weights_loaded_s", "graph_capture_s", "graph_capture_gib", "init_engine_s",
    "memory_consumed_gib", "memory_activation_gib", "memory_graphs_gib", "running_requests_max",
    "waiting_requests_max",
}  # fmt: skip
# What the engine resolved stands after what was asked; statistics count as their last line.
_LATEST = {
    "max_model_len", "prefix_caching", "mamba_cache_mode", "shards_read", "shards_total", "prefix_cache_hit_fraction",
    "version",
}  # fmt: skip
_SUMMED = {"preemptions"}

# The engine's config line: `Initializing a V1 LLM engine (v0.33.0) with config: model='…', dtype=torch.bfloat16, …`
_CONFIG = {
    "model": "model",
    "max_seq_len": "max_model_len",
    "enable_prefix_caching": "prefix_caching",
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "decode_context_parallel_size": "decode_context_parallel",
    "device_config": "device",
    "dtype": "dtype",
    "kv_cache_dtype": "kv_cache_dtype",
    "load_format": "load_format",
    "quantization": "quantization",
    "enforce_eager": "enforce_eager",
    "seed": "seed",
}
_CONFIG_PAIR = re.compile(rf"(?<![\w.'])({'|'.join(_CONFIG)})=('[^']*'|\"[^\"]*\"|[^,\s)]+)")


class ValuesReader:
    """Gathers the values of one launch, line by line."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self.sources: dict[str, int] = {}

    def read(self, pattern: LinePattern, found: re.Match[str], line: int) -> None:
        """Takes what one matched line tells."""
        if pattern.front_end:
            self._put("front_end", pattern.front_end, line)
        if pattern.runner:
            self._put("runner", pattern.runner, line)
        for name, text in found.groupdict().items():
            if text is None:
                continue
            if name == "config":
                self._read_config(text, line)
            else:
                self._put(name, text, line)

    @property
    def runner(self) -> str | None:
        """The model runner, as soon as a line has told it."""
        told: str | None = self._values.get("runner")
        return told

    def values(self) -> EngineValues:
        """All that was told so far."""
        return EngineValues.model_validate(self._values)

    def _read_config(self, text: str, line: int) -> None:
        told: set[str] = set()
        for key, raw in _CONFIG_PAIR.findall(text):
            # Nested configs repeat names; the engine's own come first.
            if key not in told:
                told.add(key)
                self._put(_CONFIG[key], raw.strip("'\"").removeprefix("torch."), line)

    def _put(self, name: str, text: str, line: int) -> None:
        if name.endswith("_percent"):
            name, value = name.removesuffix("_percent") + "_fraction", _number(text, float)
            value = None if value is None else round(value / 100, 6)
        else:
            value = _convert(name, text)
        if name == "mamba_cache_mode":
            self._put("prefix_caching", str(text != "none"), line)
        if name == "unknown_environment_variables":
            self._add_variable(text, line)
            return
        if name not in self.sources or self._wins(name, value):
            self._values[name] = value
            self.sources[name] = line
        elif name in _SUMMED and value is not None:
            self._values[name] += value

    def _wins(self, name: str, value: Any) -> bool:
        held = self._values[name]
        if name == "front_end":
            # Beside the Rust front end the supervisor is Python and writes the banner as it always does.
            return bool(value == "rust")
        if name in _LATEST:
            return value is not None
        if value is None or held is None:
            return held is None and value is not None
        return bool((name in _SMALLEST and value < held) or (name in _LARGEST and value > held))

    def _add_variable(self, name: str, line: int) -> None:
        names = self._values.setdefault("unknown_environment_variables", [])
        self.sources.setdefault("unknown_environment_variables", line)
        if name not in names and len(names) < _MOST_VARIABLES:
            names.append(name)


def _convert(name: str, text: str) -> Any:
    kinds = get_args(EngineValues.model_fields[name].annotation)
    if text in ("None", "null"):
        return None
    if bool in kinds:
        return {"true": True, "false": False}.get(text.lower())
    if int in kinds:
        return _number(text, int)
    if float in kinds:
        return _number(text, float)
    return text[:_MOST_TEXT]


def _number(text: str, kind: type[int] | type[float]) -> Any:
    plain = text.replace(",", "")
    try:
        return kind(plain) if len(plain) <= 20 else None
    except ValueError:
        return None
