"""
From arguments, environment and pretend machine to the effective configuration: what a real 0.33.0 would resolve for
Kimi K3.

The rehearsal always models Kimi K3, whatever MODEL is called. `ConfigFailure` is the engine's refusal, not an error of
ours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from k3lib.errors import KnowledgeError
from k3lib.knowledge.capacity import CacheSettings, Layout
from k3lib.knowledge.hardware import Machine, find_machine, load_gpus
from k3lib.knowledge.model import ModelFacts, load_model_facts
from k3lib.knowledge.scenarios import Changes, Scenario, find_scenario

DEFAULT_START_SPEED = 10_000.0
DEFAULT_SERVE_SPEED = 8.0
_DEFAULT_MAX_NUM_SEQS = 1024  # vLLM's API server on a GPU of 70 GiB or more
_DEFAULT_BATCHED_TOKENS = 8192


class ConfigFailure(Exception):
    """vLLM would refuse this configuration; the text is vLLM's, the exit code 1."""


@dataclass(frozen=True)
class Stage:
    """
    The pretend machine and what is rehearsed on it.

    Args:
        machine: With the scenario's changes applied.
        scenario: As asked for.
        changes: The scenario's changes if this start drew them, none otherwise.
        seed: Decides every draw.
        start_speed, serve_speed: Modelled seconds per wall second.
        real_child: Whether a real process stands for the engine's core.
    """

    machine: Machine
    scenario: Scenario
    changes: Changes
    seed: int
    start_speed: float
    serve_speed: float
    real_child: bool


@dataclass(frozen=True)
class EngineConfig:
    """What the engine really runs."""

    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    api_keys: tuple[str, ...]
    layout: Layout
    cache: CacheSettings
    facts: ModelFacts
    utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    auto_length: bool
    retention_interval: int | None
    num_blocks_override: int | None
    kv_cache_memory_bytes: int | None
    tool_parser: str | None
    reasoning_parser: str
    cached_tokens_in_usage: bool
    developer_routes: bool
    stats_interval_s: float | None
    access_log: bool
    enforce_eager: bool
    load_format: str
    trust_remote_code: bool
    hash_algorithm: str
    seed: int


def read_stage(environment: Mapping[str, str]) -> Stage:
    """
    The pretend machine from the K3_REHEARSAL_ variables.

    Raises:
        KnowledgeError: An unknown machine or scenario, or a value that is not a number.
    """
    scenario = find_scenario(environment.get("K3_REHEARSAL_SCENARIO", "healthy"))
    seed = int(_number(environment, "K3_REHEARSAL_SEED", 0))
    drawn = random.Random(f"{scenario.name}:{seed}").random() < scenario.changes.probability
    changes = scenario.changes if drawn else Changes()
    machine = find_machine(environment.get("K3_REHEARSAL_MACHINE", "8xB300"))
    if changes.gpu:
        machine = replace(machine, gpu=load_gpus()[changes.gpu])
    if changes.storage_bytes_per_s:
        machine = replace(machine, storage_bytes_per_s=changes.storage_bytes_per_s)
    return Stage(
        machine=machine,
        scenario=scenario,
        changes=changes,
        seed=seed,
        start_speed=_number(environment, "K3_REHEARSAL_SPEED", DEFAULT_START_SPEED),
        serve_speed=_number(environment, "K3_REHEARSAL_SERVE_SPEED", DEFAULT_SERVE_SPEED),
        real_child=environment.get("K3_REHEARSAL_WORKERS", "0") == "1",
    )


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    try:
        value = float(text) if text else float(default)
    except ValueError:
        value = -1.0
    if value < 0 or (value == 0 and name.endswith("SPEED")):
        raise KnowledgeError(
            f"{name} is not usable",
            expected="a number above 0",
            evidence=repr(text),
            next=f"unset {name} or correct it",
        )
    return value


def resolve_config(values: Mapping[str, Any], environment: Mapping[str, str], machine: Machine) -> EngineConfig:
    """
    The effective configuration.

    Args:
        values: As `parse_arguments` gives them.
        environment: Variables of this process.
        machine: The pretend machine.

    Raises:
        ConfigFailure: vLLM would refuse it.
    """
    facts = load_model_facts()
    layout = _resolve_layout(values, environment, machine, facts)
    length, auto = _resolve_length(values["max_model_len"], facts)
    caching = values["enable_prefix_caching"] is not False
    draft = (values["speculative_config"] or {}).get("num_speculative_tokens", 0)
    interval = environment.get("VLLM_LOG_STATS_INTERVAL", "10")
    return EngineConfig(
        model=values["model"],
        served_names=tuple(values["served_model_name"] or [values["model"]]),
        host=values["host"] or "0.0.0.0",
        port=values["port"],
        api_keys=tuple(values["api_key"] or ([environment["VLLM_API_KEY"]] if "VLLM_API_KEY" in environment else [])),
        layout=layout,
        cache=CacheSettings(length, values["kv_cache_dtype"], caching, draft, checkpoint=caching),
        facts=facts,
        utilization=values["gpu_memory_utilization"],
        max_num_seqs=values["max_num_seqs"] or _DEFAULT_MAX_NUM_SEQS,
        max_num_batched_tokens=values["max_num_batched_tokens"] or _DEFAULT_BATCHED_TOKENS,
        auto_length=auto,
        retention_interval=values["prefix_cache_retention_interval"],
        num_blocks_override=values["num_gpu_blocks_override"],
        kv_cache_memory_bytes=values["kv_cache_memory_bytes"],
        tool_parser=values["tool_call_parser"] if values["enable_auto_tool_choice"] else None,
        reasoning_parser=values["reasoning_parser"],
        cached_tokens_in_usage=values["enable_prompt_tokens_details"],
        developer_routes=environment.get("VLLM_SERVER_DEV_MODE") == "1",
        stats_interval_s=None if values["disable_log_stats"] else float(interval),
        access_log=not values["disable_uvicorn_access_log"],
        enforce_eager=values["enforce_eager"],
        load_format=values["load_format"],
        trust_remote_code=values["trust_remote_code"],
        hash_algorithm=values["prefix_caching_hash_algo"],
        seed=values["seed"],
    )


def _resolve_layout(
    values: Mapping[str, Any], environment: Mapping[str, str], machine: Machine, facts: ModelFacts
) -> Layout:
    # Sequence-parallel MoE, and with it whole shared experts on every rank: vllm#50656, vllm#50912.
    sequence_parallel = values["enable_expert_parallel"] and (
        values["data_parallel_size"] > 1 or values["moe_backend"] == "deep_gemm_mega_moe"
    )
    layout = Layout(
        tensor=values["tensor_parallel_size"],
        pipeline=values["pipeline_parallel_size"],
        data=values["data_parallel_size"],
        expert=values["enable_expert_parallel"],
        replicate_shared_experts=sequence_parallel and environment.get("VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT") != "1",
    )
    if facts.attention_heads % layout.tensor:
        raise ConfigFailure(
            f"Total number of attention heads ({facts.attention_heads}) must be divisible by tensor parallel size "
            f"({layout.tensor})."
        )
    if layout.gpus > machine.gpus:
        raise ConfigFailure(
            f"World size ({layout.gpus}) is larger than the number of available GPUs ({machine.gpus}) in this node. "
            "If this is intentional and you are using:\n- ray, set '--distributed-executor-backend ray'.\n"
            "- multiprocessing, set '--nnodes' appropriately."
        )
    return layout


def _resolve_length(asked: int | None, facts: ModelFacts) -> tuple[int, bool]:
    if asked is None or asked == -1:
        return facts.context_tokens, asked == -1
    if asked > facts.context_tokens:
        raise ConfigFailure(
            f"User-specified max_model_len ({asked}) is greater than the derived max_model_len "
            f"(max_position_embeddings={facts.context_tokens} or model_max_length=None in model's config.json). "
            "To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        )
    return asked, False


def cache_mode(cache: CacheSettings) -> str:
    """The effective `mamba_cache_mode`: `align` or `none`."""
    return "align" if cache.prefix_caching else "none"


def worker_names(layout: Layout) -> list[str]:
    """
    Process names of the ranks as the log shows them.

    >>> worker_names(Layout(tensor=2, pipeline=2))
    ['Worker_PP0_TP0', 'Worker_PP0_TP1', 'Worker_PP1_TP0', 'Worker_PP1_TP1']
    """
    names = []
    for rank in range(layout.gpus):
        rest, tensor = divmod(rank, layout.tensor)
        data, pipeline = divmod(rest, layout.pipeline)
        name = "Worker"
        name += f"_DP{data}" if layout.data > 1 else ""
        name += f"_PP{pipeline}" if layout.pipeline > 1 else ""
        name += f"_TP{tensor}" if layout.tensor > 1 else ""
        name += f"_EP{rank}" if layout.expert else ""
        names.append(name)
    return names
