"""
How many tokens fit: the hybrid KV pool of Kimi K3, pure arithmetic, every rule with its source.

All sizes are per rank (one GPU); bytes are bytes, GiB only in messages. A block of the pool holds either the attention
cache of its tokens or one state of linear attention, so both are cut to one page.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from k3lib.errors import CapacityError
from k3lib.knowledge.capacity import Layout, need_positive
from k3lib.knowledge.model import ModelFacts

_BLOCK_ALIGNMENT_TOKENS = 128
_STATE_BYTES_PER_ELEMENT = 4  # the recurrent state is float32 unless mamba_ssm_cache_dtype says otherwise
_CONV_BYTES_PER_ELEMENT = 2  # the convolution state has the model's dtype, bfloat16
_KV_BYTES_PER_ELEMENT = {"auto": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_ds_mla": 1}


def kv_bytes_per_element(kv_cache_dtype: str) -> int:
    """
    Bytes of one KV-cache element.

    Raises:
        CapacityError: A dtype these formulas do not know.

    >>> kv_bytes_per_element("fp8")
    1
    """
    if kv_cache_dtype not in _KV_BYTES_PER_ELEMENT:
        raise CapacityError(
            f"KV-cache dtype {kv_cache_dtype!r} is unknown",
            expected=f"one of {', '.join(_KV_BYTES_PER_ELEMENT)}",
            evidence=repr(kv_cache_dtype),
            next="set kv_cache_dtype to one of these",
        )
    return _KV_BYTES_PER_ELEMENT[kv_cache_dtype]


def mla_bytes_per_token(model: ModelFacts, kv_cache_dtype: str = "fp8", layers: int | None = None) -> int:
    """
    KV cache of one token over the MLA layers, on every rank alike: raising TP does not shrink it.

    Args:
        model: The model.
        kv_cache_dtype: As in `--kv-cache-dtype`; `auto` is bfloat16.
        layers: MLA layers counted; all by default.

    Source:
        vLLM 0.33.0 models/kimi_k3/nvidia/mla.py:421 (max_tp_shards=1).

    >>> from k3lib.knowledge.model import load_model_facts
    >>> [mla_bytes_per_token(load_model_facts(), dtype) for dtype in ("fp8", "auto")]
    [13824, 27648]
    """
    counted = model.mla_layers if layers is None else layers
    return counted * model.mla_latent_elements * kv_bytes_per_element(kv_cache_dtype)


def kda_state_bytes(model: ModelFacts, tensor: int, speculative_tokens: int = 0) -> int:
    """
    Linear-attention state of one layer and one sequence on one rank: recurrent matrix plus convolution window.

    Args:
        model: The model.
        tensor: Tensor-parallel size; must divide the heads.
        speculative_tokens: Draft tokens per step; each lengthens the convolution window.

    Raises:
        CapacityError: tensor does not divide the heads, or a number is below its minimum.

    Source:
        vLLM 0.33.0 model_executor/layers/mamba/mamba_utils.py:133,296.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> [kda_state_bytes(load_model_facts(), tensor) for tensor in (1, 8)]
    [6512640, 814080]
    """
    need_positive("tensor", tensor)
    if model.attention_heads % tensor or speculative_tokens < 0:
        raise CapacityError(
            "the linear-attention state cannot be cut so",
            expected=f"a tensor-parallel size that divides {model.attention_heads} heads, and 0 or more draft tokens",
            evidence=f"tensor {tensor}, speculative_tokens {speculative_tokens}",
            next="choose 1, 2, 4, 8, 16 or another divisor",
        )
    heads = model.attention_heads // tensor
    recurrent = heads * model.head_size * model.head_size * _STATE_BYTES_PER_ELEMENT
    window = model.conv_kernel - 1 + speculative_tokens
    return recurrent + 3 * heads * model.head_size * window * _CONV_BYTES_PER_ELEMENT


def hybrid_block_tokens(
    model: ModelFacts, tensor: int, kv_cache_dtype: str = "fp8", speculative_tokens: int = 0
) -> int:
    """
    Tokens in one KV block: the smallest multiple of 128 whose attention page holds a linear-attention state.

    Source:
        vLLM 0.33.0 platforms/interface.py:1085-1112; 1536 is in the log of vllm#50235.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> k3 = load_model_facts()
    >>> [hybrid_block_tokens(k3, 8), hybrid_block_tokens(k3, 8, "auto"), hybrid_block_tokens(k3, 16)]
    [1536, 768, 768]
    >>> [hybrid_block_tokens(k3, 4), hybrid_block_tokens(k3, 1), hybrid_block_tokens(k3, 8, "fp8", 8)]
    [2944, 11392, 1664]
    """
    page = kda_state_bytes(model, tensor, speculative_tokens)
    per_unit = _BLOCK_ALIGNMENT_TOKENS * mla_bytes_per_token(model, kv_cache_dtype, layers=1)
    return _BLOCK_ALIGNMENT_TOKENS * ceil(page / per_unit)


def state_padding_fraction(
    model: ModelFacts, tensor: int, kv_cache_dtype: str = "fp8", speculative_tokens: int = 0
) -> float:
    """
    By how much a state page is padded to the attention page, 0–1; the log prints it as a percentage.

    Source:
        vLLM 0.33.0 platforms/interface.py:1133, `Padding mamba page size by 8.68%`.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> round(state_padding_fraction(load_model_facts(), 8) * 100, 2)
    8.68
    """
    page = attention_page_bytes(model, tensor, kv_cache_dtype, speculative_tokens)
    return page / kda_state_bytes(model, tensor, speculative_tokens) - 1


def attention_page_bytes(
    model: ModelFacts, tensor: int, kv_cache_dtype: str = "fp8", speculative_tokens: int = 0
) -> int:
    """
    Bytes of one layer's page of one block on one rank.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> attention_page_bytes(load_model_facts(), 8)
    884736
    """
    block = hybrid_block_tokens(model, tensor, kv_cache_dtype, speculative_tokens)
    return block * mla_bytes_per_token(model, kv_cache_dtype, layers=1)


def padding_layers(model: ModelFacts) -> tuple[int, float]:
    """
    Layers added so that the linear-attention layers fill whole groups, and their share of those layers, 0–1.

    Source:
        vLLM 0.33.0 v1/core/kv_cache_planning.py:523-540, `Add 3 padding layers, may waste at most 4.35%`.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> added, share = padding_layers(load_model_facts())
    >>> added, round(share * 100, 2)
    (3, 4.35)
    """
    added = kda_groups(model) * model.mla_layers - model.kda_layers
    return added, added / model.kda_layers


def kda_groups(model: ModelFacts) -> int:
    """
    Cache groups of linear-attention layers, each as large as the one group of MLA layers.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> kda_groups(load_model_facts())
    3
    """
    return ceil(model.kda_layers / model.mla_layers)


def pool_block_bytes(
    model: ModelFacts, layout: Layout, kv_cache_dtype: str = "fp8", speculative_tokens: int = 0
) -> int:
    """
    Bytes of one block of the shared pool on one rank: a page for each layer of a group.

    Source:
        vLLM 0.33.0 v1/core/kv_cache_planning.py:523-540; a pipeline stage holds its share of the layers.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> pool_block_bytes(load_model_facts(), Layout(8)) / 2**20
    20.25
    """
    group_layers = ceil(model.mla_layers / layout.pipeline)
    return group_layers * attention_page_bytes(model, layout.tensor, kv_cache_dtype, speculative_tokens)


def kv_blocks_per_request(
    length_tokens: int,
    block_tokens: int,
    *,
    kda_groups: int = 3,
    speculative_tokens: int = 0,
    prefix_caching: bool = True,
    checkpoint: bool = True,
) -> int:
    """
    KV-cache blocks that one request of this length holds on one rank.

    Args:
        length_tokens: Prompt plus output, tokens, 1 or more.
        block_tokens: Hybrid block size as the engine logged it, tokens.
        kda_groups: Groups of linear-attention layers; 3 for Kimi K3.
        speculative_tokens: Draft tokens per step.
        prefix_caching: With it (`align`) every group keeps a running and a previous state.
        checkpoint: One FlashKDA checkpoint more per group; only with prefix caching.

    Returns:
        Whole blocks.

    Raises:
        CapacityError: length_tokens or block_tokens is below 1.

    Source:
        vLLM 0.33.0 v1/kv_cache_interface.py, MambaSpec.max_memory_usage_bytes; models/kimi_k3/nvidia/kda.py:901.

    >>> [kv_blocks_per_request(length, 1536) for length in (131_072, 1_048_576)]
    [95, 692]
    >>> kv_blocks_per_request(131_072, 1536, prefix_caching=False)
    89
    """
    need_positive("length_tokens", length_tokens)
    states = kda_groups * state_blocks_per_group(speculative_tokens, prefix_caching, checkpoint)
    return ceil(length_tokens / need_positive("block_tokens", block_tokens)) + states


def state_blocks_per_group(speculative_tokens: int = 0, prefix_caching: bool = True, checkpoint: bool = True) -> int:
    """
    Blocks of state that a request holds in one group of linear-attention layers, whatever its length.

    >>> state_blocks_per_group(), state_blocks_per_group(prefix_caching=False)
    (3, 1)
    """
    return (2 + checkpoint if prefix_caching else 1) + speculative_tokens


@dataclass(frozen=True)
class KvPool:
    """
    The KV pool of one rank, and what the start-up line says of it.

    Args:
        blocks: Whole blocks in the pool.
        block_tokens: Tokens per block.
        block_bytes: Bytes per block on one rank.
        blocks_per_request: Blocks of one request of the maximum length.
        max_model_len: That length, tokens.
        state_blocks: Of these, blocks that do not grow with the length.
        state_groups: Cache groups of linear-attention layers; one state is a block in each.
        context_parallel: Ranks that share a request's attention blocks.
    """

    blocks: int
    block_tokens: int
    block_bytes: int
    blocks_per_request: int
    max_model_len: int
    state_blocks: int
    state_groups: int = 3
    context_parallel: int = 1

    @property
    def unit_tokens(self) -> int:
        """
        Tokens that one attention block spans over the ranks that share it: the engine's `kv lcm block sizes`.

        Source: vLLM 0.33.0 v1/core/kv_cache_utils.py:865; 12,288 for TP8 fp8 under a decode-context size of 8.
        """
        return self.block_tokens * self.context_parallel

    @property
    def max_concurrency(self) -> float:
        """Requests of the maximum length that fit at once."""
        return self.blocks / self.blocks_per_request

    @property
    def tokens(self) -> int:
        """
        The `N tokens` of the start-up line: concurrency × maximum length, not blocks × block size.

        Source: vLLM 0.33.0 v1/core/kv_cache_utils.py:1120-1142.
        """
        return int(self.max_concurrency * self.max_model_len)

    @property
    def needed_bytes(self) -> int:
        """KV memory of one request of the maximum length."""
        return self.blocks_per_request * self.block_bytes

    @property
    def longest_request_tokens(self) -> int:
        """The longest request that fits alone, tokens; 0 if none does."""
        return max(0, self.blocks - self.state_blocks) * self.unit_tokens


@dataclass(frozen=True)
class CacheSettings:
    """
    The settings that shape the pool.

    Args:
        max_model_len: Tokens.
        kv_cache_dtype: As in `--kv-cache-dtype`.
        prefix_caching: On or off.
        speculative_tokens: Draft tokens per step.
        checkpoint: Whether the backend keeps a FlashKDA checkpoint.
    """

    max_model_len: int
    kv_cache_dtype: str = "fp8"
    prefix_caching: bool = True
    speculative_tokens: int = 0
    checkpoint: bool = True


def plan_kv_pool(model: ModelFacts, layout: Layout, settings: CacheSettings, available_bytes: float) -> KvPool:
    """
    The pool that a given amount of memory makes. A negative amount is a pool of 0 blocks: an engine that cannot start.

    Args:
        model: The model.
        layout: How it is spread.
        settings: Length, dtype, caching.
        available_bytes: What profiling left on one rank; may be negative, as in the engine's log.

    Raises:
        CapacityError: max_model_len below 1, an unknown dtype, or a layout that does not divide the heads.

    >>> from k3lib.knowledge.model import load_model_facts
    >>> pool = plan_kv_pool(load_model_facts(), Layout(8), CacheSettings(1_048_576), 57 * 2**30)
    >>> pool.blocks, pool.blocks_per_request, round(pool.max_concurrency, 2)
    (2882, 692, 4.16)
    """
    need_positive("max_model_len", settings.max_model_len)
    block_bytes = pool_block_bytes(model, layout, settings.kv_cache_dtype, settings.speculative_tokens)
    block_tokens = hybrid_block_tokens(model, layout.tensor, settings.kv_cache_dtype, settings.speculative_tokens)
    groups = kda_groups(model)
    per_request = kv_blocks_per_request(
        settings.max_model_len,
        block_tokens * layout.decode_context,
        kda_groups=groups,
        speculative_tokens=settings.speculative_tokens,
        prefix_caching=settings.prefix_caching,
        checkpoint=settings.checkpoint,
    )
    states = groups * state_blocks_per_group(settings.speculative_tokens, settings.prefix_caching, settings.checkpoint)
    blocks = max(0, int(available_bytes // block_bytes))
    return KvPool(
        blocks, block_tokens, block_bytes, per_request, settings.max_model_len, states, groups, layout.decode_context
    )
