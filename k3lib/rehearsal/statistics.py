"""
The line that vLLM's front end writes every ten seconds, and withholds once it has been idle for two of them.

The two front ends word it differently, and differ in what they mean: the Python one leaves the hit rate out while no
lookup has been counted and then tells that of all lookups so far; the Rust one always has it, for the interval alone,
and counts as prompt only what was computed.

Source: vLLM 0.33.0 v1/metrics/loggers.py:275-341; vLLM rust/src/llm/src/log_stats.rs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from k3lib.knowledge.profiles import Profile
from k3lib.rehearsal.clock import ModelClock
from k3lib.rehearsal.config import EngineConfig
from k3lib.rehearsal.engine import Engine
from k3lib.rehearsal.wording import Wording


@dataclass(frozen=True)
class Interval:
    """
    What happened between two lines.

    Args:
        seconds: Modelled length.
        prompt, generation: Tokens in it.
        running, waiting: Requests at its end.
        preemptions: In it.
        usage_fraction: Of the KV pool, at its end.
        queries, hits: Tokens looked up and found in it.
        hit_fraction: Of all lookups so far, or None if there were none.
    """

    seconds: float
    prompt: int
    generation: int
    running: int
    waiting: int
    preemptions: int
    usage_fraction: float
    queries: int = 0
    hits: int = 0
    hit_fraction: float | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing happened and nothing is in work."""
        return not (self.prompt or self.generation or self.running or self.waiting)


def render_interval(interval: Interval, device: str = "GPU") -> str:
    """
    The line of the Python front end, after the engine's number.

    >>> render_interval(Interval(10.0, 56, 48, 0, 0, 0, 0.0)).split(", ")[:2]
    ['Avg prompt throughput: 5.6 tokens/s', 'Avg generation throughput: 4.8 tokens/s']
    """
    parts = [
        f"Avg prompt throughput: {interval.prompt / interval.seconds:.1f} tokens/s",
        f"Avg generation throughput: {interval.generation / interval.seconds:.1f} tokens/s",
        f"Running: {interval.running} reqs",
        f"Waiting: {interval.waiting} reqs",
    ]
    if interval.preemptions:
        parts.append(f"Preemptions: {interval.preemptions}")
    parts.append(f"{device} KV cache usage: {interval.usage_fraction:.1%}")
    if interval.hit_fraction is not None:
        parts.append(f"Prefix cache hit rate: {interval.hit_fraction:.1%}")
    return ", ".join(parts)


def render_rust_interval(interval: Interval) -> str:
    """
    The line of the Rust front end.

    >>> render_rust_interval(Interval(10.0, 56, 48, 2, 0, 0, 0.018, queries=100, hits=25)).split(", ")[-2:]
    ['GPU KV cache used: 1.8%', 'Prefix cache hit rate: 25.0%']
    """
    computed = interval.prompt - interval.hits
    parts = [
        f"Avg prompt tput: {computed / interval.seconds:.1f} toks/s",
        f"Avg generation tput: {interval.generation / interval.seconds:.1f} toks/s",
        f"Reqs Running: {interval.running}",
        f"Waiting: {interval.waiting}",
    ]
    if interval.preemptions:
        parts.append(f"Preemptions: {interval.preemptions}")
    parts.append(f"GPU KV cache used: {interval.usage_fraction:.1%}")
    parts.append(f"Prefix cache hit rate: {interval.hits / max(1, interval.queries):.1%}")
    return ", ".join(parts)


async def report_statistics(
    engine: Engine, config: EngineConfig, clock: ModelClock, say: Wording, rank: int = 0
) -> None:
    """Write the line for ever, in modelled time; nothing with `--disable-log-stats`."""
    if config.stats_interval_s is None:
        return
    before, idle_intervals, began = dict(engine.totals), 2, clock.now()
    while True:
        await asyncio.sleep(config.stats_interval_s / clock.serve_speed)
        now, totals = clock.now(), dict(engine.totals)
        interval = Interval(
            seconds=max(now - began, 1e-9),
            prompt=totals["prompt"] - before["prompt"],
            generation=totals["generation"] - before["generation"],
            running=len(engine.running),
            waiting=len(engine.waiting),
            preemptions=totals["preemptions"] - before["preemptions"],
            usage_fraction=engine.blocks.usage_fraction,
            queries=totals["queries"] - before["queries"],
            hits=totals["hits"] - before["hits"],
            hit_fraction=totals["hits"] / totals["queries"] if totals["queries"] else None,
        )
        idle_intervals = idle_intervals + 1 if interval.idle else 0
        if idle_intervals < 2:
            say.line("statistics", engine=rank, parts=_render(interval, say.profile))
        before, began = totals, now


def _render(interval: Interval, profile: Profile) -> str:
    if profile.front_end == "rust":
        return render_rust_interval(interval)
    return render_interval(interval, "CPU" if profile.platform == "cpu" else "GPU")
