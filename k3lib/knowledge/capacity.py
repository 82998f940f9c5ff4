"""
How much memory Kimi K3's weights and activations need: pure arithmetic, every rule with its source.

What is left for tokens is in `kv_pool.py`.

All sizes are per rank (one GPU) unless the name says otherwise; bytes are bytes, GiB only in messages. The formulas
read the model's numbers from `ModelFacts`, so another model of the same class needs no new code.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from k3lib.errors import CapacityError
from k3lib.knowledge.model import ModelFacts

GIB = 1 << 30


@dataclass(frozen=True)
class Layout:
    """
    How the model is spread.

    Args:
        tensor: Tensor-parallel size.
        pipeline: Pipeline stages.
        data: Data-parallel size.
        expert: Whether whole experts are spread over tensor × data ranks instead of being cut.
        decode_context: Ranks that share the KV cache of one request in decode; divides tensor.
        replicate_shared_experts: Sequence-parallel MoE without VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    replicate_shared_experts: bool = False
    decode_context: int = 1

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data", "decode_context"):
            need_positive(name, getattr(self, name))
        if self.tensor % self.decode_context:
            raise CapacityError(
                "the KV cache cannot be shared so",
                expected=f"a decode-context size that divides the tensor-parallel size {self.tensor}",
                evidence=f"decode_context = {self.decode_context}",
                next="choose a divisor, or 1",
            )

    @property
    def gpus(self) -> int:
        """Ranks in all."""
        return self.tensor * self.pipeline * self.data


def routed_expert_bytes(model: ModelFacts, layout: Layout) -> float:
    """
    Routed experts on one rank. Cutting an expert pads every cut to a minimum width; spreading whole experts does not.

    Without expert parallelism the cut goes over tensor × data ranks (DP shards the MoE too); the padding looks at the
    tensor-parallel cut alone.

    Source:
        vLLM 0.33.0 models/kimi_k3/nvidia/model.py:419-430; vllm#51124 (180.8 GB at TP8, 120.5 GB and not 90.4 at TP16);
        16xH200 as TP8 and DP2 without expert parallelism is a verified layout of the recipe.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> k3 = load_model_facts()
    >>> [round(routed_expert_bytes(k3, Layout(tensor=n)) / 1e9, 1) for n in (8, 16)]
    [180.8, 120.5]
    >>> [round(routed_expert_bytes(k3, layout) / 1e9, 1) for layout in (Layout(16, expert=True), Layout(8, data=2))]
    [90.4, 90.4]
    """
    experts, columns = float(model.routed_experts), float(model.moe_intermediate_size)
    if layout.expert:
        experts = ceil(experts / (layout.tensor * layout.data))
    else:
        if layout.tensor > 1:
            columns = max(ceil(columns / layout.tensor), model.min_moe_columns_per_rank)
        columns /= layout.data
    per_layer = experts * 3 * model.latent_size * columns * model.expert_bits_per_param / 8
    return per_layer * model.moe_layers / layout.pipeline


def weight_bytes(model: ModelFacts, layout: Layout) -> float:
    """
    All weights on one rank: routed experts, the sharded rest, and what every rank holds whole.

    Source:
        Component sizes in model_k3.yaml; replicated parts and shared experts vllm#50656, vllm#50912.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> k3 = load_model_facts()
    >>> [round(weight_bytes(k3, layout) / 1e9) for layout in (Layout(8), Layout(16), Layout(8, pipeline=2))]
    [204, 137, 102]
    """
    dense = model.trunk_bytes + model.embedding_bytes - model.replicated_bytes
    replicated = float(model.replicated_bytes)
    if layout.replicate_shared_experts:
        dense -= model.shared_expert_bytes
        replicated += model.shared_expert_bytes
    return routed_expert_bytes(model, layout) + (dense / layout.tensor + replicated) / layout.pipeline


def activation_bytes(model: ModelFacts, max_num_batched_tokens: int) -> int:
    """
    Peak activation of the profiling run; an assumption of the rehearsal, not a measurement.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> activation_bytes(load_model_facts(), 8192) / GIB
    3.5
    """
    need_positive("max_num_batched_tokens", max_num_batched_tokens)
    return model.activation_base_bytes + max_num_batched_tokens * model.activation_bytes_per_batched_token


def need_positive(name: str, value: int) -> int:
    """
    The value, if it is 1 or more.

    Raises:
        CapacityError: It is not.
    """
    if value < 1:
        raise CapacityError(
            f"{name} is {value}", expected="1 or more", evidence=f"{name} = {value}", next=f"give a {name} of 1 or more"
        )
    return value
