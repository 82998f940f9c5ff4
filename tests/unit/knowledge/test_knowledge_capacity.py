"""The arithmetic of Kimi K3 gives the published and logged numbers, and refuses nonsense."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.errors import CapacityError, KnowledgeError
from k3lib.knowledge import capacity, kv_pool
from k3lib.knowledge.capacity import GIB, Layout
from k3lib.knowledge.data import read_knowledge
from k3lib.knowledge.hardware import find_machine, load_gpus, load_machines
from k3lib.knowledge.kv_pool import CacheSettings
from k3lib.knowledge.model import load_model_facts, parse_model_facts
from k3lib.knowledge.scenarios import find_scenario, list_scenarios
from k3lib.spec.vocabulary import Domain, Oom, Phase, Route

K3 = load_model_facts()


@pytest.mark.parametrize(
    ("block_tokens", "tensor", "dtype", "draft"),
    [
        (1536, 8, "fp8", 0),
        (768, 8, "auto", 0),
        (768, 16, "fp8", 0),
        (2944, 4, "fp8", 0),
        (11_392, 1, "fp8", 0),
        (1664, 8, "fp8", 8),
        (1536, 8, "fp8", 7),
    ],
)
def test_block_size(block_tokens: int, tensor: int, dtype: str, draft: int) -> None:
    """The hybrid block size follows from TP, KV dtype and draft length exactly."""
    assert block_tokens == kv_pool.hybrid_block_tokens(K3, tensor, dtype, draft)


@pytest.mark.parametrize(
    ("blocks", "length", "block_tokens"),
    [(95, 131_072, 1536), (692, 1_048_576, 1536), (180, 131_072, 768), (1375, 1_048_576, 768)],
)
def test_blocks_per_request(blocks: int, length: int, block_tokens: int) -> None:
    """A request holds its tokens' blocks and nine blocks of state."""
    assert blocks == kv_pool.kv_blocks_per_request(length, block_tokens)


def test_pool_block_and_padding() -> None:
    """One block is 20.25 MiB per rank at TP8; padding is 8.68 % of a state page and 4.35 % of the layers."""
    assert 20.25 == kv_pool.pool_block_bytes(K3, Layout(8)) / (1 << 20)
    assert 8.68 == round(kv_pool.state_padding_fraction(K3, 8) * 100, 2)
    added, share = kv_pool.padding_layers(K3)
    assert (3, 4.35) == (added, round(share * 100, 2))


def test_state_and_latent_sizes() -> None:
    """MLA is replicated, KDA state is cut: 13,824 B per token on every rank, 814,080 B per layer at TP8."""
    assert 13_824 == kv_pool.mla_bytes_per_token(K3, "fp8")
    assert 27_648 == kv_pool.mla_bytes_per_token(K3, "bfloat16")
    assert 814_080 == kv_pool.kda_state_bytes(K3, 8)
    assert 449 == round(kv_pool.kda_state_bytes(K3, 1) * K3.kda_layers / 1e6)


@pytest.mark.parametrize(
    ("low_gb", "high_gb", "layout"),
    [
        (195, 205, Layout(8)),
        (136, 140, Layout(16)),
        (105, 115, Layout(16, expert=True)),
        (105, 115, Layout(8, data=2, expert=True)),
        (98, 103, Layout(8, pipeline=2)),
    ],
)
def test_weights_per_rank(low_gb: float, high_gb: float, layout: Layout) -> None:
    """Weights per rank fall into the ranges derived by hand for each layout."""
    assert low_gb <= capacity.weight_bytes(K3, layout) / 1e9 <= high_gb


def test_tp16_pads_the_experts() -> None:
    """Doubling TP from 8 to 16 saves a third of the routed experts, not half, unless experts are spread whole."""
    eight = capacity.routed_expert_bytes(K3, Layout(8))
    assert 2 / 3 == pytest.approx(capacity.routed_expert_bytes(K3, Layout(16)) / eight)
    assert 1 / 2 == pytest.approx(capacity.routed_expert_bytes(K3, Layout(16, expert=True)) / eight)


def test_checkpoint_is_the_sum_of_its_parts() -> None:
    """Experts, trunk and embeddings add up to the 1.56 TB on disk."""
    whole = capacity.routed_expert_bytes(K3, Layout()) + K3.trunk_bytes + K3.embedding_bytes
    assert K3.checkpoint_bytes == pytest.approx(whole, rel=0.001)


def test_shared_experts_replicated_under_sequence_parallel() -> None:
    """Replicated shared experts cost about 17 GiB more per GPU on TEP8 and more on wider groups."""
    plain = capacity.weight_bytes(K3, Layout(4, data=2, expert=True))
    whole = capacity.weight_bytes(K3, Layout(4, data=2, expert=True, replicate_shared_experts=True))
    assert 16.98 == pytest.approx((whole - plain) / GIB, abs=0.05)


@given(available=st.floats(-500 * GIB, 500 * GIB), length=st.integers(1, 1_048_576), caching=st.booleans())
def test_pool_is_consistent(available: float, length: int, caching: bool) -> None:
    """Whatever is left, the longest request just fits, and the start-up figure is concurrency times length."""
    pool = kv_pool.plan_kv_pool(K3, Layout(8), CacheSettings(length, prefix_caching=caching), available)
    longest = pool.longest_request_tokens
    if longest:
        held = kv_pool.kv_blocks_per_request(longest, pool.block_tokens, prefix_caching=caching, checkpoint=caching)
        assert pool.blocks == held
    assert (pool.max_concurrency >= 1) == (longest >= length)
    assert pool.tokens == int(pool.max_concurrency * length)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("length_tokens", lambda: kv_pool.kv_blocks_per_request(0, 1536)),
        ("block_tokens", lambda: kv_pool.kv_blocks_per_request(1, 0)),
        ("tensor", lambda: Layout(tensor=0)),
        ("linear-attention", lambda: kv_pool.kda_state_bytes(K3, 7)),
        ("int4", lambda: kv_pool.mla_bytes_per_token(K3, "int4")),
        ("max_model_len", lambda: kv_pool.plan_kv_pool(K3, Layout(8), CacheSettings(0), GIB)),
        ("max_num_batched_tokens", lambda: capacity.activation_bytes(K3, 0)),
    ],
)
def test_nonsense_is_refused(name: str, call: object) -> None:
    """A number that a formula cannot take is a CapacityError that names it."""
    with pytest.raises(CapacityError, match=name):
        call()  # type: ignore[operator]


def test_every_number_has_a_source() -> None:
    """No number of the model stands without unit, status and source."""
    for key, sourced in K3.sources.items():
        assert sourced.unit, key
        assert sourced.source, key


@pytest.mark.parametrize("break_it", ["drop", "extra", "text", "status", "unit"])
def test_malformed_model_is_refused(break_it: str) -> None:
    """A file of facts with a missing, unknown or unsourced number fails closed."""
    data = copy.deepcopy(read_knowledge("model_k3.yaml"))
    facts = data["facts"]
    if break_it == "drop":
        del facts["layers"]
    elif break_it == "extra":
        facts["flavour"] = facts["layers"]
    elif break_it == "text":
        facts["layers"]["value"] = "93"
    elif break_it == "status":
        facts["layers"]["status"] = "rumour"
    else:
        del facts["layers"]["unit"]
    with pytest.raises(KnowledgeError, match=r"model_k3\.yaml"):
        parse_model_facts(data)


def test_machines_and_scenarios_load() -> None:
    """Machines name known GPUs, scenarios end in known phases, and a wrong name is refused."""
    assert {machine.gpu.name for machine in load_machines().values()} <= set(load_gpus())
    labels = [scenario.label for scenario in list_scenarios()]
    assert {label.phase for label in labels} <= {None, *map(str, Phase)}
    assert {label.oom for label in labels} <= set(map(str, Oom))
    assert {label.route for label in labels} <= set(map(str, Route))
    assert {label.domain for label in labels} <= {None, *map(str, Domain)}
    with pytest.raises(KnowledgeError, match="9xB300"):
        find_machine("9xB300")
    with pytest.raises(KnowledgeError, match="oom-weight"):
        find_scenario("oom-weight")


@pytest.mark.parametrize(
    ("fits", "machine"), [(True, "8xB300"), (True, "8xGB300"), (False, "8xB200"), (False, "8xH200")]
)
def test_what_holds_kimi_k3_at_tp8(fits: bool, machine: str) -> None:
    """Eight B300 or GB300 hold the weights; eight B200 or H200 do not."""
    memory = find_machine(machine).gpu.memory_gib * GIB
    assert fits == (capacity.weight_bytes(K3, Layout(8)) < memory)
