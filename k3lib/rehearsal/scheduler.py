"""
Which requests run in a step, as vLLM's scheduler decides it; no time passes in here.

Running requests come first, in order of admission: a token for each that decodes, a chunk of the prompt for each that
does not. One that finds no block sends the youngest back to the queue (preemption). Then the queue is admitted in order
of arrival, while the token budget and the number of sequences allow it and the whole prompt would find room.

Source: vLLM 0.32.0 v1/core/sched/scheduler.py:600-1330, v1/core/kv_cache_manager.py:380-520.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from k3lib.rehearsal.blocks import NO_MATCH, BlockPool, Match, hash_blocks
from k3lib.rehearsal.request import Request


@dataclass
class Step:
    """
    What one forward pass computes.

    Args:
        prefill: Requests and where their chunk ends, tokens.
        decoding: Requests that get a token.
        preempted: How many were sent back.
    """

    prefill: dict[Request, int] = field(default_factory=dict)
    decoding: dict[Request, None] = field(default_factory=dict)
    preempted: int = 0

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens in it."""
        return sum(end - request.computed for request, end in self.prefill.items())

    @property
    def longest_context_tokens(self) -> int:
        """Where the furthest chunk of a prompt ends."""
        return max(self.prefill.values(), default=0)


class Scheduler:
    """
    The queue and the running requests of one engine.

    Args:
        blocks: The KV pool.
        max_num_seqs: Running requests at most.
        max_num_batched_tokens: Tokens of a step at most.
        watermark_blocks: Blocks that admission leaves free while others run.
        block_tokens: Tokens of one hash.
        on_admission: Called with a request that is admitted for the first time.
    """

    def __init__(
        self,
        blocks: BlockPool,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        block_tokens: int,
        watermark_blocks: int = 0,
        on_admission: Callable[[Request], None] = lambda _: None,
    ) -> None:
        self.blocks = blocks
        self.waiting: deque[Request] = deque()
        self.running: dict[Request, None] = {}  # in order of admission; a dict because it is asked for members often
        self._most_requests, self._most_tokens = max_num_seqs, max_num_batched_tokens
        self._block_tokens, self._watermark = block_tokens, watermark_blocks
        self._on_admission = on_admission

    def queue(self, request: Request) -> None:
        """Put a new request at the end of the queue."""
        if self.blocks.caching:
            request.hashes = hash_blocks(request.prompt, self._block_tokens, request.salt)
        self.waiting.append(request)

    def drop(self, request: Request) -> bool:
        """Forget a request; False if it was not here."""
        if request in self.running:
            self.release(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        else:
            return False
        return True

    def plan_step(self) -> Step:
        """Decide the next step and take its blocks."""
        step, budget = Step(), self._most_tokens
        for request in list(self.running):
            if request in self.running and budget > 0:
                budget -= self._continue(request, budget, step)
        while not step.preempted and self.waiting and budget > 0 and len(self.running) < self._most_requests:
            spent = self._admit(self.waiting[0], budget, step)
            if not spent:
                break
            budget -= spent
        return step

    def finish_prefill(self, request: Request, end: int) -> bool:
        """
        Count a chunk as computed.

        Returns:
            Whether the prompt is done, so that the step gave its first token.
        """
        start, request.computed = request.computed, end
        fresh = request.hashes[start // self._block_tokens : end // self._block_tokens]
        known = self.blocks.publish(fresh)
        request.shared += known
        request.blocks -= len(known)
        for position in self.blocks.retention.kept_states(start, end, request.goal, request.junction):
            if position // self._block_tokens <= len(request.hashes):
                self.blocks.keep_state(request.hashes[position // self._block_tokens - 1])
        return request.decoding

    def release(self, request: Request) -> None:
        """Let go of a running request's blocks."""
        del self.running[request]
        self.blocks.give_back(request.blocks, request.shared)
        request.blocks, request.shared = 0, []

    def _continue(self, request: Request, budget: int, step: Step) -> int:
        """A token or a chunk for a running request; tokens spent."""
        if request.decoding:
            if self._grow(request, request.prompt_tokens + request.emitted + 1, step):
                step.decoding[request] = None
                return 1
            return 0
        end = self._chunk_end(request, request.computed, budget)
        if end > request.computed and self._grow(request, end, step):
            step.prefill[request] = end
            return end - request.computed
        return 0

    def _chunk_end(self, request: Request, start: int, budget: int) -> int:
        if not self.blocks.keeps_states:
            return min(start + budget, request.goal)
        return self.blocks.retention.chunk_end(start, start + budget, request.goal, request.junction)

    def _grow(self, request: Request, tokens: int, step: Step) -> bool:
        """Blocks for so many tokens; False if the request itself had to make room."""
        extra = self.blocks.own_blocks(tokens) - request.blocks - len(request.shared)
        while extra > 0 and not self.blocks.take(extra):
            youngest = next(reversed(self.running))
            self._preempt(youngest, step)
            if youngest is request:
                return False
        request.blocks += max(0, extra)
        return True

    def _preempt(self, request: Request, step: Step) -> None:
        self.release(request)
        request.computed = 0
        request.preemptions += 1
        step.preempted += 1
        step.prefill.pop(request, None)
        step.decoding.pop(request, None)
        self.waiting.appendleft(request)

    def _admit(self, request: Request, budget: int, step: Step) -> int:
        """The first chunk of a waiting request; tokens spent, 0 if it must wait."""
        goal = request.prompt_tokens + request.emitted
        match = self.blocks.match(request.hashes, goal)
        spare = self._watermark if self.running else 0
        if not self.blocks.fits(self._missing(goal, match) + spare, match):
            return 0
        request.goal, request.junction = goal, match.junction
        end = self._chunk_end(request, match.tokens, budget)
        missing = self._missing(end, match)
        if end <= match.tokens or not self.blocks.take(missing, match):
            return 0
        self.waiting.popleft()
        self.running[request] = None
        request.blocks, request.shared, request.computed = missing, list(match.blocks), match.tokens
        if not request.preemptions:
            request.cached_tokens = match.tokens
            self._on_admission(request)
        step.prefill[request] = end
        return end - match.tokens

    def _missing(self, tokens: int, match: Match = NO_MATCH) -> int:
        return self.blocks.own_blocks(tokens) - len(match.blocks)
