"""
The line that vLLM's Python front end writes every ten seconds, and withholds once it has been idle for two of them.

Source: vLLM 0.33.0 v1/metrics/loggers.py:275-341. The hit rate is absent, not 0.0 %, while no lookup has been counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from k3lib.rehearsal.clock import ModelClock
from k3lib.rehearsal.config import EngineConfig
from k3lib.rehearsal.engine import Engine
from k3lib.rehearsal.journal import Journal


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
        hit_fraction: Of all lookups so far, or None if there were none.
    """

    seconds: float
    prompt: int
    generation: int
    running: int
    waiting: int
    preemptions: int
    usage_fraction: float
    hit_fraction: float | None

    @property
    def idle(self) -> bool:
        """Whether nothing happened and nothing is in work."""
        return not (self.prompt or self.generation or self.running or self.waiting)


def render_interval(interval: Interval) -> str:
    """
    The line.

    >>> render_interval(Interval(10.0, 56, 48, 0, 0, 0, 0.0, None)).split(", ")[:2]
    ['Engine 000: Avg prompt throughput: 5.6 tokens/s', 'Avg generation throughput: 4.8 tokens/s']
    """
    parts = [
        f"Engine 000: Avg prompt throughput: {interval.prompt / interval.seconds:.1f} tokens/s",
        f"Avg generation throughput: {interval.generation / interval.seconds:.1f} tokens/s",
        f"Running: {interval.running} reqs",
        f"Waiting: {interval.waiting} reqs",
    ]
    if interval.preemptions:
        parts.append(f"Preemptions: {interval.preemptions}")
    parts.append(f"GPU KV cache usage: {interval.usage_fraction:.1%}")
    if interval.hit_fraction is not None:
        parts.append(f"Prefix cache hit rate: {interval.hit_fraction:.1%}")
    return ", ".join(parts)


async def report_statistics(engine: Engine, config: EngineConfig, clock: ModelClock, journal: Journal) -> None:
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
            hit_fraction=totals["hits"] / totals["queries"] if totals["queries"] else None,
        )
        idle_intervals = idle_intervals + 1 if interval.idle else 0
        if idle_intervals < 2:
            journal.api("loggers.py:341", render_interval(interval))
        before, began = totals, now
