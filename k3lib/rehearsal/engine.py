"""
The scheduler: a step at a time, as vLLM's core runs it.

Each step gives every decoding request one token and spends what is left of the token budget on prompts, in order of
arrival. A request that finds no block waits; a running one that finds none sends the youngest back to the queue
(preemption). A step takes the time the model gives it, divided by the serving speed, against a deadline that adds up,
so 256 streams share one timer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from k3lib.knowledge.capacity import KvPool
from k3lib.rehearsal.blocks import BlockPool, hash_blocks
from k3lib.rehearsal.clock import ModelClock
from k3lib.rehearsal.config import EngineConfig, Stage
from k3lib.rehearsal.failures import RuntimeFailure
from k3lib.rehearsal.memory import MemoryPlan, OutOfMemory, find_first_request_failures
from k3lib.rehearsal.metrics import Metrics


@dataclass(eq=False)
class Request:
    """
    One request in the engine.

    Args:
        prompt: Token pieces.
        output_tokens: How many will be generated.
        max_tokens: The limit it came with.
        finish_reason: `stop` or `length`, known in advance because the answer is.
        salt: Keeps prompts with other images or cache salts apart.
    """

    prompt: Sequence[str]
    output_tokens: int
    max_tokens: int
    finish_reason: str
    salt: str = ""
    steps: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)
    hashes: list[bytes] = field(default_factory=list)
    cached: list[bytes] = field(default_factory=list)
    cached_tokens: int = 0
    blocks: int = 0
    computed: int = 0
    emitted: int = 0
    preemptions: int = 0
    arrived: float = 0.0
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt)


class Engine:
    """
    The core.

    Args:
        config, stage, plan, pool: What the start left behind.
        clock, metrics: Modelled time and counters.
    """

    def __init__(
        self, config: EngineConfig, stage: Stage, plan: MemoryPlan, pool: KvPool, clock: ModelClock, metrics: Metrics
    ) -> None:
        self._config, self._stage, self._plan, self._clock, self._metrics = config, stage, plan, clock, metrics
        self.pool = pool
        self.blocks = BlockPool(pool, caching=config.cache.prefix_caching)
        self.waiting: deque[Request] = deque()
        self.running: dict[Request, None] = {}  # in order of admission; a dict because it is asked for members often
        self.dead = False
        self.failed_ranks: list[OutOfMemory] = []
        self.totals = {"prompt": 0, "generation": 0, "queries": 0, "hits": 0, "preemptions": 0}
        self._work = asyncio.Event()
        self._warm = False

    def submit(self, request: Request) -> None:
        """
        Queue a request.

        Raises:
            RuntimeFailure: The engine is dead.
        """
        if self.dead:
            raise RuntimeFailure
        request.arrived = self._clock.now()
        if self.blocks.caching:
            request.hashes = hash_blocks(request.prompt, self.pool.block_tokens, request.salt)
        self.waiting.append(request)
        self._publish()
        self._work.set()

    def abort(self, request: Request) -> None:
        """Forget a request whose client went away."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self._release(request)
        else:
            return
        self._metrics.add("request_success", part="abort")
        self._publish()

    def die(self) -> None:
        """End everything in flight; each waiting consumer gets None."""
        self.dead = True
        for request in (*self.running, *self.waiting):
            request.steps.put_nowait(None)
        self.running.clear()
        self.waiting.clear()

    async def run(self) -> None:
        """
        Step until a failure.

        Raises:
            RuntimeFailure: Out of memory in a forward pass; `failed_ranks` has the messages.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time()
        while True:
            if not (self.waiting or self.running):
                self._work.clear()
                await self._work.wait()
                deadline = loop.time()
            if not self._stage.changes.answers:
                await self._hold_forever()
            prefill = self._schedule()
            if not self._warm:
                self._warm = True
                self.failed_ranks = find_first_request_failures(self._config, self._stage, self._plan)
            if self.failed_ranks:
                raise RuntimeFailure
            decoding = [request for request in self.running if request not in prefill]
            deadline += self._step_s(len(decoding), sum(prefill.values())) / self._clock.serve_speed
            await asyncio.sleep(max(0.0, deadline - loop.time()))
            self._finish_step(decoding, prefill)

    async def _hold_forever(self) -> None:
        """A hang: requests count as running, nothing moves, health knows nothing of it."""
        while True:
            self.running.update(dict.fromkeys(self.waiting))
            self.waiting.clear()
            self._publish()
            self._work.clear()
            await self._work.wait()

    def _step_s(self, decoding: int, prefill_tokens: int) -> float:
        facts = self._config.facts
        decode = facts.decode_step_s + max(0, decoding - 1) * facts.decode_step_s_per_sequence if decoding else 0.0
        return decode + prefill_tokens / facts.prefill_tokens_per_s

    def _schedule(self) -> dict[Request, int]:
        """Decide the step: make room for decoding requests, then share out the budget for prompts."""
        decoding = [request for request in self.running if request.computed >= request.prompt_tokens]
        for request in decoding:
            self._grow(request)
        budget = self._config.max_num_batched_tokens - sum(request in self.running for request in decoding)
        prefill: dict[Request, int] = {}
        for request in self.running:
            left = request.prompt_tokens - request.computed
            if left > 0 and budget > 0:
                prefill[request] = min(left, budget)
                budget -= prefill[request]
        while self.waiting and budget > 0 and len(self.running) < self._config.max_num_seqs:
            request = self.waiting[0]
            if not self._admit(request):
                break
            self.waiting.popleft()
            prefill[request] = min(request.prompt_tokens - request.computed, budget)
            budget -= prefill[request]
        return prefill

    def _admit(self, request: Request) -> bool:
        cached = self.blocks.match(request.hashes, request.prompt_tokens)
        own = self.blocks.own_blocks(request.prompt_tokens + request.emitted) - len(cached)
        if not self.blocks.take(own, cached):
            return False
        request.cached, request.blocks = cached, own
        request.computed = len(cached) * self.pool.block_tokens
        request.scheduled = request.scheduled or self._clock.now()
        self.running[request] = None
        if self.blocks.caching and not request.preemptions:
            request.cached_tokens = request.computed
            self._count_lookup(request)
        return True

    def _count_lookup(self, request: Request) -> None:
        self.totals["queries"] += request.prompt_tokens
        self.totals["hits"] += request.cached_tokens
        self._metrics.add("prefix_cache_queries", request.prompt_tokens)
        self._metrics.add("prefix_cache_hits", request.cached_tokens)
        self._metrics.add("prompt_tokens_cached_by_source", request.cached_tokens, part="device")

    def _grow(self, request: Request) -> None:
        """One more token may need one more block; without one the youngest running request goes back to the queue."""
        if request not in self.running:
            return
        needed = self.blocks.own_blocks(request.prompt_tokens + request.emitted + 1)
        extra = needed - request.blocks - len(request.cached)
        while extra > 0 and not self.blocks.take(extra):
            youngest = next(reversed(self.running))
            self._preempt(youngest)
            if youngest is request:
                return
        request.blocks += max(0, extra)

    def _preempt(self, request: Request) -> None:
        self._release(request)
        request.computed = 0
        request.preemptions += 1
        self.totals["preemptions"] += 1
        self._metrics.add("num_preemptions")
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        del self.running[request]
        full = request.hashes[: request.computed // self.pool.block_tokens]
        self.blocks.give_back(request.blocks, request.cached, full)
        request.blocks, request.cached = 0, []

    def _finish_step(self, decoding: Sequence[Request], prefill: dict[Request, int]) -> None:
        for request, tokens in prefill.items():
            if request in self.running:
                request.computed += tokens
                if request.computed >= request.prompt_tokens:
                    self._emit(request)
        for request in decoding:
            if request in self.running:
                self._emit(request)
        self._metrics.observe("iteration_tokens_total", len(decoding) + sum(prefill.values()))
        self._publish()

    def _emit(self, request: Request) -> None:
        now = self._clock.now()
        request.emitted += 1
        self.totals["generation"] += 1
        self._metrics.add("generation_tokens")
        if request.first_token is None:
            request.first_token = now
            self.totals["prompt"] += request.prompt_tokens
            self._count_prompt(request, now)
        else:
            self._metrics.observe("inter_token_latency_seconds", now - (request.last_token or now))
        request.last_token = now
        if request.emitted >= request.output_tokens:
            self._complete(request, now)
        request.steps.put_nowait(request.emitted)

    def _count_prompt(self, request: Request, now: float) -> None:
        metrics, computed = self._metrics, request.prompt_tokens - request.cached_tokens
        metrics.add("prompt_tokens", request.prompt_tokens)
        metrics.add("prompt_tokens_cached", request.cached_tokens)
        metrics.add("prompt_tokens_by_source", computed, part="local_compute")
        metrics.add("prompt_tokens_by_source", request.cached_tokens, part="local_cache_hit")
        metrics.observe("time_to_first_token_seconds", now - request.arrived)

    def _complete(self, request: Request, now: float) -> None:
        self._release(request)
        scheduled, first = request.scheduled or request.arrived, request.first_token or now
        metrics = self._metrics
        metrics.add("request_success", part=request.finish_reason)
        for key, value in (
            ("request_prompt_tokens", request.prompt_tokens),
            ("request_generation_tokens", request.emitted),
            ("request_max_num_generation_tokens", request.emitted),
            ("request_params_n", 1),
            ("request_params_max_tokens", request.max_tokens),
            ("request_prefill_kv_computed_tokens", request.prompt_tokens - request.cached_tokens),
            ("request_num_preemptions", request.preemptions),
            ("e2e_request_latency_seconds", now - request.arrived),
            ("request_queue_time_seconds", scheduled - request.arrived),
            ("request_inference_time_seconds", now - scheduled),
            ("request_prefill_time_seconds", first - scheduled),
            ("request_decode_time_seconds", now - first),
            ("request_time_per_output_token_seconds", (now - first) / max(1, request.emitted - 1)),
        ):
            metrics.observe(key, value)

    def _publish(self) -> None:
        self._metrics.set_load(len(self.running), len(self.waiting), self.blocks.usage_fraction)
