"""
From arguments, environment and pretend machine to the effective configuration: what a real engine of the release that
is played would resolve for Kimi K3.

The rehearsal models Kimi K3, whatever MODEL is called; only in the profile of a CPU build does it model the tiny models
that run there. `ConfigFailure` is the engine's refusal, not an error of ours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from k3lib.errors import KnowledgeError
from k3lib.knowledge.capacity import GIB, Layout
from k3lib.knowledge.hardware import Machine, find_machine, load_gpus
from k3lib.knowledge.kv_pool import CacheSettings
from k3lib.knowledge.model import ModelFacts, load_model_facts
from k3lib.knowledge.profiles import CpuModel, Profile
from k3lib.knowledge.scenarios import Changes, Scenario, find_scenario
from k3lib.rehearsal.placement import ConfigFailure, Placement, resolve_layout, resolve_placement
from k3lib.rehearsal.profiles import find_cpu_model, read_profile, resolve_caching, resolve_retention

DEFAULT_START_SPEED = 10_000.0
DEFAULT_SERVE_SPEED = 8.0
_CPU_CACHE_GIB = 4.0
_READY_TIMEOUT_S = 600  # vLLM 0.33.0 v1/engine/core_client.py:765
_EXECUTE_TIMEOUT_S = 300  # vLLM 0.33.0 envs.py:1863


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
        variables: Of the process, with those the scenario left behind.
    """

    machine: Machine
    scenario: Scenario
    changes: Changes
    seed: int
    start_speed: float
    serve_speed: float
    real_child: bool
    variables: Mapping[str, str]


@dataclass(frozen=True)
class EngineConfig:
    """What the engine really runs; `cpu_model` only in the profile of a CPU build, where it stands for Kimi K3."""

    profile: Profile
    cpu_model: CpuModel | None
    cpu_cache_bytes: int
    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    api_keys: tuple[str, ...]
    layout: Layout
    placement: Placement
    cache: CacheSettings
    facts: ModelFacts
    utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    watermark: float
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
    ready_timeout_s: float
    execute_timeout_s: float
    launch_blocking: bool

    @property
    def architecture(self) -> str:
        """Class of the model, as the log names it."""
        return self.cpu_model.architecture if self.cpu_model else self.facts.architecture

    @property
    def hybrid(self) -> bool:
        """Whether the model has linear-attention layers."""
        return self.cpu_model is None or self.cpu_model.linear_groups > 0


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
        variables={**environment, **changes.environment},
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
    facts, profile = load_model_facts(), read_profile(environment)
    cpu_model = find_cpu_model(values["model"]) if profile.platform == "cpu" else None
    layout = Layout() if cpu_model else resolve_layout(values, environment, facts)
    length, auto = _resolve_length(
        values["max_model_len"], cpu_model.context_tokens if cpu_model else facts.context_tokens
    )
    caching = resolve_caching(values["enable_prefix_caching"], profile, cpu_model)
    draft = (values["speculative_config"] or {}).get("num_speculative_tokens", 0)
    interval = environment.get("VLLM_LOG_STATS_INTERVAL", "10")
    return EngineConfig(
        profile=profile,
        cpu_model=cpu_model,
        cpu_cache_bytes=int(float(environment.get("VLLM_CPU_KVCACHE_SPACE") or _CPU_CACHE_GIB) * GIB),
        model=values["model"],
        served_names=tuple(values["served_model_name"] or [values["model"]]),
        host=values["host"] or "0.0.0.0",
        port=values["port"],
        api_keys=tuple(values["api_key"] or ([environment["VLLM_API_KEY"]] if "VLLM_API_KEY" in environment else [])),
        layout=layout,
        placement=Placement((0,), (0,)) if cpu_model else resolve_placement(values, layout, machine),
        cache=CacheSettings(length, values["kv_cache_dtype"], caching, draft, checkpoint=caching and not cpu_model),
        facts=facts,
        utilization=values["gpu_memory_utilization"],
        max_num_seqs=values["max_num_seqs"] or profile.resolved["max-num-seqs"],
        max_num_batched_tokens=values["max_num_batched_tokens"] or profile.resolved["max-num-batched-tokens"],
        watermark=values["watermark"],
        auto_length=auto,
        retention_interval=resolve_retention(values, environment, profile),
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
        ready_timeout_s=float(environment.get("VLLM_ENGINE_READY_TIMEOUT_S", _READY_TIMEOUT_S)),
        execute_timeout_s=float(environment.get("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", _EXECUTE_TIMEOUT_S)),
        launch_blocking=environment.get("CUDA_LAUNCH_BLOCKING") == "1",
    )


def _resolve_length(asked: int | None, context_tokens: int) -> tuple[int, bool]:
    if asked is None or asked == -1:
        return context_tokens, asked == -1
    if asked > context_tokens:
        raise ConfigFailure(
            f"User-specified max_model_len ({asked}) is greater than the derived max_model_len "
            f"(max_position_embeddings={context_tokens} or model_max_length=None in model's config.json). "
            "To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        )
    return asked, False


def cache_mode(cache: CacheSettings) -> str:
    """The effective `mamba_cache_mode`: `align` or `none`."""
    return "align" if cache.prefix_caching else "none"
