"""
Kimi K3 in numbers, typed; the numbers themselves, their units and sources are in `model_k3.yaml`.

A plain frozen dataclass and no pydantic: the rehearsal loads it in every start, and its start-up time is part of a
contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from k3lib.knowledge.data import malformed, read_knowledge

_FILE = "model_k3.yaml"
_STATUSES = frozenset({"official", "code", "third-party", "derived", "assumed"})
_STARTUP_STEPS = (
    "arguments",
    "config",
    "engine_process",
    "distributed",
    "create_weights",
    "process_weights",
    "profile",
    "allocate_kv",
    "capture_graphs",
    "api",
)


@dataclass(frozen=True)
class Sourced:
    """
    A number with its circumstances.

    Args:
        value: In `unit`.
        unit: `bytes`, `tokens`, `layers` …
        status: official, code, third-party, derived or assumed.
        source: Where it is written.
    """

    value: float
    unit: str
    status: str
    source: str


@dataclass(frozen=True)
class ModelFacts:
    """What the capacity formulas need of one model. Each field has its `Sourced` in `sources`."""

    name: str
    architecture: str
    total_params: int
    layers: int
    kda_layers: int
    mla_layers: int
    moe_layers: int
    routed_experts: int
    experts_per_token: int
    hidden_size: int
    latent_size: int
    moe_intermediate_size: int
    attention_heads: int
    head_size: int
    conv_kernel: int
    mla_latent_elements: int
    vocab_size: int
    context_tokens: int
    expert_bits_per_param: float
    min_moe_columns_per_rank: int
    trunk_bytes: int
    embedding_bytes: int
    replicated_bytes: int
    shared_expert_bytes: int
    checkpoint_bytes: int
    checkpoint_shards: int
    activation_base_bytes: int
    activation_bytes_per_batched_token: int
    non_torch_bytes: int
    graph_bytes: int
    first_forward_bytes: int
    decode_step_s: float
    launch_blocking_factor: float
    decode_step_s_per_sequence: float
    prefill_tokens_per_s: float
    startup_s: Mapping[str, float]
    sources: Mapping[str, Sourced]


_NOT_FACTS = {"name", "architecture", "startup_s", "sources"}


@cache
def load_model_facts() -> ModelFacts:
    """
    Kimi K3.

    Returns:
        The facts, with a source for every number.

    Raises:
        KnowledgeError: A number is missing, unknown, not a number, or has no unit or source.

    >>> k3 = load_model_facts()
    >>> k3.kda_layers + k3.mla_layers == k3.layers
    True
    >>> k3.sources["layers"].status
    'official'
    """
    return parse_model_facts(read_knowledge(_FILE))


def parse_model_facts(data: Mapping[str, Any]) -> ModelFacts:
    """
    Check plain data and turn it into `ModelFacts`.

    Args:
        data: As in `model_k3.yaml`: name, architecture, facts, startup_s.

    Raises:
        KnowledgeError: See `load_model_facts`.
    """
    facts = data.get("facts") or {}
    wanted = {field.name for field in fields(ModelFacts)} - _NOT_FACTS
    if wanted != set(facts):
        raise malformed(_FILE, "exactly the facts of ModelFacts", f"differing: {sorted(wanted ^ set(facts))}")
    sources = {key: _parse_sourced(key, entry) for key, entry in facts.items()}
    startup = data.get("startup_s") or {}
    if set(startup) != set(_STARTUP_STEPS) or not all(_is_number(value) for value in startup.values()):
        raise malformed(_FILE, f"startup_s with {', '.join(_STARTUP_STEPS)}", repr(startup))
    return ModelFacts(
        name=str(data["name"]),
        architecture=str(data["architecture"]),
        startup_s=startup,
        sources=sources,
        **{key: sourced.value for key, sourced in sources.items()},  # type: ignore[arg-type]
    )


def _parse_sourced(key: str, entry: Any) -> Sourced:
    if not isinstance(entry, dict) or set(entry) != {"value", "unit", "status", "source"}:
        raise malformed(_FILE, f"{key}: value, unit, status, source", repr(entry))
    if not _is_number(entry["value"]) or entry["value"] <= 0:
        raise malformed(_FILE, f"{key}: a number above 0", repr(entry["value"]))
    if entry["status"] not in _STATUSES:
        raise malformed(_FILE, f"{key}: status one of {', '.join(sorted(_STATUSES))}", repr(entry["status"]))
    return Sourced(**entry)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
