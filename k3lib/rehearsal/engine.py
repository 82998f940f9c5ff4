"""
One engine core: a step at a time, each as long as the model says.

The scheduler decides a step, the pool gives its blocks, the memory plan says whether its workspace fits, and a fault
may strike. A step takes the time the model gives it, divided by the serving speed, against a deadline that adds up, so
256 streams share one timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from math import ceil

from k3lib.knowledge.faults import Fault, find_fault
from k3lib.knowledge.kv_pool import KvPool
from k3lib.rehearsal.blocks import BlockPool
from k3lib.rehearsal.clock import ModelClock
from k3lib.rehearsal.config import EngineConfig, Stage
from k3lib.rehearsal.failures import RuntimeFailure, out_of_memory, strike
from k3lib.rehearsal.memory import MemoryPlan, find_step_failures
from k3lib.rehearsal.metrics import Metrics
from k3lib.rehearsal.request import Request, Token
from k3lib.rehearsal.retention import Retention
from k3lib.rehearsal.scheduler import Scheduler, Step


class Engine:
    """
    The core.

    Args:
        config, stage, plan, pool: What the start left behind.
        clock, metrics: Modelled time and counters.
    """

    def __init__(
        self,
        config: EngineConfig,
        stage: Stage,
        plan: MemoryPlan,
        pool: KvPool,
        clock: ModelClock,
        metrics: Metrics,
    ) -> None:
        self._config, self._stage, self._plan, self._clock, self._metrics = config, stage, plan, clock, metrics
        self.pool = pool
        self.blocks = _make_blocks(config, stage, pool)
        self._scheduler = Scheduler(
            self.blocks,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            block_tokens=pool.unit_tokens,
            watermark_blocks=int(config.watermark * pool.blocks),
            on_admission=self._count_admission,
        )
        self.dead = False
        self.totals = {"prompt": 0, "generation": 0, "queries": 0, "hits": 0, "preemptions": 0}
        self._fault: Fault | None = find_fault(stage.changes.fault) if stage.changes.fault else None
        self._admitted = 0
        self.stalled = asyncio.Event()  # ranks of another node are gone: a forward pass never ends
        self._work = asyncio.Event()

    @property
    def running(self) -> Collection[Request]:
        """Requests in work."""
        return self._scheduler.running

    @property
    def waiting(self) -> Collection[Request]:
        """Requests in the queue."""
        return self._scheduler.waiting

    def submit(self, request: Request) -> None:
        """
        Queue a request.

        Raises:
            RuntimeFailure: The engine is dead.
        """
        if self.dead:
            raise RuntimeFailure
        request.arrived = self._clock.now()
        self._scheduler.queue(request)
        self._publish()
        self._work.set()

    def abort(self, request: Request) -> None:
        """Forget a request whose client went away."""
        if self._scheduler.drop(request):
            self._metrics.add("request_success", part="abort")
            self._publish()

    def die(self) -> None:
        """End everything in flight; each waiting consumer gets None."""
        self.dead = True
        for request in (*self._scheduler.running, *self._scheduler.waiting):
            request.steps.put_nowait(None)
        self._scheduler.running.clear()
        self._scheduler.waiting.clear()

    async def run(self) -> None:
        """
        Step until a failure.

        Raises:
            RuntimeFailure: A forward pass failed, on the ranks it names.
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
            if self.stalled.is_set():
                await self._time_out()
            step = self._scheduler.plan_step()
            self._count_preemptions(step)
            self._check_step(step)
            deadline += self._step_s(step) / self._clock.serve_speed
            await asyncio.sleep(max(0.0, deadline - loop.time()))
            computed = len(step.decoding) + step.prefill_tokens
            made = self._finish_step(step, deadline)
            await asyncio.sleep(0)  # the tokens leave before anything is counted
            self._count_step(computed, made)

    async def _hold_forever(self) -> None:
        """A hang: requests count as running, nothing moves, health knows nothing of it."""
        while True:
            self._scheduler.running.update(dict.fromkeys(self._scheduler.waiting))
            self._scheduler.waiting.clear()
            self._publish()
            self._work.clear()
            await self._work.wait()

    async def _time_out(self) -> None:
        """The core waits for ranks that are gone: vLLM 0.33.0 v1/executor/multiproc_executor.py:509."""
        await asyncio.sleep(self._config.execute_timeout_s / self._clock.serve_speed)
        raise RuntimeFailure(core="TimeoutError: RPC call to execute_model timed out.")

    def _check_step(self, step: Step) -> None:
        """Whether the forward pass of this step can be run at all."""
        failures = find_step_failures(self._plan, len(self.running), step.longest_context_tokens)
        if failures and not self._config.cpu_model:
            raise RuntimeFailure(out_of_memory("execute_model", failures))
        fault = self._fault
        if fault and fault.point == "step" and self._admitted >= self._stage.changes.fault_requests:
            if fault.kind == "kill":
                raise RuntimeFailure(lost_rank=self._stage.seed % self._plan.ranks)
            raise RuntimeFailure(strike(fault, self._plan, self._stage.seed))

    def _step_s(self, step: Step) -> float:
        """Modelled seconds; an engine with nothing it can run looks again after the time of one token."""
        facts, decoding = self._config.facts, len(step.decoding)
        prefill_s = step.prefill_tokens / (self._stage.changes.prefill_tokens_per_s or facts.prefill_tokens_per_s)
        if step.prefill and not decoding:
            return prefill_s
        decode_s = facts.decode_step_s + max(0, decoding - 1) * facts.decode_step_s_per_sequence
        return prefill_s + decode_s * (facts.launch_blocking_factor if self._config.launch_blocking else 1.0)

    def _finish_step(self, step: Step, due_s: float) -> list[Request]:
        """Hand out the tokens of a step; the requests that got one."""
        made = []
        for request, end in step.prefill.items():
            if request in self._scheduler.running and self._scheduler.finish_prefill(request, end):
                made.append(request)
        made += [request for request in step.decoding if request in self._scheduler.running]
        for request in made:
            request.emitted += 1
            if request.emitted >= request.output_tokens:
                self._scheduler.release(request)
            request.steps.put_nowait(Token(request.emitted, due_s))
        return made

    def _count_step(self, computed_tokens: int, made: list[Request]) -> None:
        now = self._clock.now()
        for request in made:
            self._count_token(request, now)
        self.totals["generation"] += len(made)
        self._metrics.add("generation_tokens", len(made))
        self._metrics.observe("iteration_tokens_total", computed_tokens)
        self._publish()

    def _count_admission(self, request: Request) -> None:
        self._admitted += 1
        request.scheduled = self._clock.now()
        if self.blocks.caching:
            self.totals["queries"] += request.prompt_tokens
            self.totals["hits"] += request.cached_tokens
            self._metrics.add("prefix_cache_queries", request.prompt_tokens)
            self._metrics.add("prefix_cache_hits", request.cached_tokens)
            self._metrics.add("prompt_tokens_cached_by_source", request.cached_tokens, part="device")

    def _count_preemptions(self, step: Step) -> None:
        if step.preempted:
            self.totals["preemptions"] += step.preempted
            self._metrics.add("num_preemptions", step.preempted)

    def _count_token(self, request: Request, now: float) -> None:
        if request.first_token is None:
            request.first_token = now
            self.totals["prompt"] += request.prompt_tokens
            self._count_prompt(request, now)
        else:
            self._metrics.observe("inter_token_latency_seconds", now - (request.last_token or now))
        request.last_token = now
        if request.emitted >= request.output_tokens:
            self._count_finished(request, now)

    def _count_prompt(self, request: Request, now: float) -> None:
        metrics, computed = self._metrics, request.prompt_tokens - request.cached_tokens
        metrics.add("prompt_tokens", request.prompt_tokens)
        metrics.add("prompt_tokens_cached", request.cached_tokens)
        metrics.add("prompt_tokens_by_source", computed, part="local_compute")
        metrics.add("prompt_tokens_by_source", request.cached_tokens, part="local_cache_hit")
        metrics.observe("time_to_first_token_seconds", now - request.arrived)

    def _count_finished(self, request: Request, now: float) -> None:
        scheduled, first = request.scheduled or request.arrived, request.first_token or now
        self._metrics.add("request_success", part=request.finish_reason)
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
            self._metrics.observe(key, value)

    def _publish(self) -> None:
        self._metrics.set_load(len(self.running), len(self.waiting), self.blocks.usage_fraction)


def _make_blocks(config: EngineConfig, stage: Stage, pool: KvPool) -> BlockPool:
    """The pool with this engine's retention policy; FlashKDA exports checkpoints from inside a chunk."""
    cpu = config.cpu_model
    retention = Retention(
        block_tokens=pool.unit_tokens,
        interval_tokens=config.retention_interval,
        checkpoint_tokens=cpu.hash_unit_tokens if cpu else None,
        largest_chunk_tokens=config.max_num_batched_tokens,
        speculative=config.cache.speculative_tokens > 0,
    )
    hidden = ceil(stage.changes.hidden_block_fraction * pool.blocks)
    return BlockPool(pool, caching=config.cache.prefix_caching, retention=retention, hidden=hidden)
