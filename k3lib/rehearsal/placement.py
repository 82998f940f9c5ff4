"""
Which ranks and engines this process has, and whom it must meet: one node of one or several.

Two ways to spread vLLM over nodes, both told by flags: `--data-parallel-size-local` puts whole engines on other nodes,
`--nnodes` cuts one engine's ranks over them. Either way the head answers HTTP and the others are started `--headless`.

Source: vLLM 0.33.0 entrypoints/cli/serve.py:200-260.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3lib.knowledge.capacity import Layout
from k3lib.knowledge.hardware import Machine
from k3lib.knowledge.model import ModelFacts


class ConfigFailure(Exception):
    """vLLM would refuse this configuration; the text is vLLM's, the exit code 1."""


@dataclass(frozen=True)
class Placement:
    """
    The part of an engine that this process is.

    Args:
        ranks: Worker ranks of this node, in order.
        engines: Data-parallel ranks whose cores run here; none where the head's core drives these ranks.
        headless: Whether it answers no HTTP.
        absent: Ranks of other nodes, which must come before the world is whole.
        address: Where the nodes meet, host and port.
    """

    ranks: tuple[int, ...]
    engines: tuple[int, ...]
    headless: bool = False
    absent: int = 0
    address: tuple[str, int] = ("127.0.0.1", 29501)


def resolve_placement(values: Mapping[str, Any], layout: Layout, machine: Machine) -> Placement:
    """
    This node's part of the layout.

    Raises:
        ConfigFailure: The flags do not divide the ranks, or the node has too few GPUs.
    """
    local = values["data_parallel_size_local"] or layout.data
    nodes, node = values["nnodes"], values["node_rank"]
    per_engine = layout.tensor * layout.pipeline
    if nodes > 1 and (per_engine % nodes or not 0 <= node < nodes):
        raise ConfigFailure(f"node_rank ({node}) must be less than nnodes ({nodes}), which must divide {per_engine}.")
    first = values["data_parallel_start_rank"] or 0
    if local > layout.data - first:
        raise ConfigFailure(f"data_parallel_size_local ({local}) must be <= data_parallel_size ({layout.data})")
    engines = tuple(range(first, first + local))
    share = per_engine // nodes
    ranks = tuple(engine * per_engine + node * share + part for engine in engines for part in range(share))
    here = machine.gpus // machine.nodes
    if len(ranks) > here:
        raise ConfigFailure(
            f"World size ({len(ranks)}) is larger than the number of available GPUs ({here}) in this node. "
            "If this is intentional and you are using:\n- ray, set '--distributed-executor-backend ray'.\n"
            "- multiprocessing, set '--nnodes' appropriately."
        )
    cores = engines if node == 0 else ()
    return Placement(ranks, cores, values["headless"], layout.gpus - len(ranks), _address(values, nodes))


def _address(values: Mapping[str, Any], nodes: int) -> tuple[str, int]:
    if nodes > 1:
        return values["master_addr"], values["master_port"]
    return values["data_parallel_address"] or "127.0.0.1", values["data_parallel_rpc_port"] or 29550


def resolve_layout(values: Mapping[str, Any], environment: Mapping[str, str], facts: ModelFacts) -> Layout:
    """
    How the model is spread over all nodes.

    Raises:
        ConfigFailure: Tensor parallelism does not divide the heads.
    """
    # Sequence-parallel MoE, and with it whole shared experts on every rank: vllm#50656, vllm#50912.
    sequence_parallel = values["enable_expert_parallel"] and (
        values["data_parallel_size"] > 1 or values["moe_backend"] == "deep_gemm_mega_moe"
    )
    tensor, shared = values["tensor_parallel_size"], values["decode_context_parallel_size"]
    if facts.attention_heads % tensor:
        raise ConfigFailure(
            f"Total number of attention heads ({facts.attention_heads}) must be divisible by tensor parallel size "
            f"({tensor})."
        )
    if tensor % shared:
        raise ConfigFailure(f"tp_size={tensor} must be divisible by dcp_size={shared}.")
    return Layout(
        tensor=tensor,
        pipeline=values["pipeline_parallel_size"],
        data=values["data_parallel_size"],
        expert=values["enable_expert_parallel"],
        replicate_shared_experts=sequence_parallel and environment.get("VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT") != "1",
        decode_context=shared,
    )


def worker_names(layout: Layout, placement: Placement) -> dict[int, str]:
    """
    Process names of this node's ranks, as the log shows them.

    >>> worker_names(Layout(tensor=2, pipeline=2), Placement((2, 3), (0,)))
    {2: 'Worker_PP1_TP0', 3: 'Worker_PP1_TP1'}
    """
    names = {}
    for rank in placement.ranks:
        rest, tensor = divmod(rank, layout.tensor)
        data, pipeline = divmod(rest, layout.pipeline)
        name = "Worker"
        name += f"_DP{data}" if layout.data > 1 else ""
        name += f"_PP{pipeline}" if layout.pipeline > 1 else ""
        name += f"_TP{tensor}" if layout.tensor > 1 else ""
        name += f"_EP{rank}" if layout.expert else ""
        names[rank] = name
    return names


def engine_names(layout: Layout, placement: Placement) -> dict[int, str]:
    """
    Process names of this node's engine cores.

    >>> engine_names(Layout(data=2), Placement((0,), (0,))), engine_names(Layout(), Placement((0,), (0,)))
    ({0: 'EngineCore_DP0'}, {0: 'EngineCore'})
    """
    return {rank: f"EngineCore_DP{rank}" if layout.data > 1 else "EngineCore" for rank in placement.engines}
