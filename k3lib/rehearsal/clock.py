"""
Modelled time. The log's stamps advance by what the model says a step takes; the wall clock by that, divided by a speed.

Loading 1.56 TB at 1.3 GB/s is twenty minutes between two stamps and a fifth of a second of waiting. A time-out is kept
in modelled time too: it depends on the model alone, never on how slow this machine is.
"""

from __future__ import annotations

import asyncio
import time


class PatienceEnded(Exception):
    """The modelled time that a start may take is over."""


class ModelClock:
    """
    The engine's own clock.

    Args:
        start_speed: Modelled seconds per wall second while the engine starts.
        serve_speed: The same while it serves.
    """

    def __init__(self, start_speed: float, serve_speed: float) -> None:
        self.start_speed, self.serve_speed = start_speed, serve_speed
        self._modelled = time.time()
        self._mark = self._deadline = time.monotonic()
        self._serving = False
        self._step_s = 0.0  # length of the step of the start that is passing
        self._patience_s: float | None = None

    def now(self) -> float:
        """Modelled seconds since the epoch."""
        if not self._serving:
            left_s = max(0.0, self._deadline - time.monotonic()) * self.start_speed
            return self._modelled + max(0.0, self._step_s - left_s)
        return self._modelled + (time.monotonic() - self._mark) * self.serve_speed

    def limit(self, patience_s: float) -> None:
        """From here on, the start may take so many modelled seconds more."""
        self._patience_s = patience_s

    async def pass_time(self, seconds: float) -> None:
        """
        Let modelled time pass while the engine starts.

        Waits against a deadline that only ever adds up, so that a late wake-up is not paid for twice.

        Raises:
            PatienceEnded: The limit came first.
        """
        left_s = self._patience_s
        if left_s is not None and seconds > left_s:
            await self._wait(left_s)
            raise PatienceEnded
        await self._wait(seconds)
        if left_s is not None:
            self._patience_s = left_s - seconds

    async def _wait(self, seconds: float) -> None:
        self._deadline += seconds / self.start_speed
        self._step_s = seconds
        await asyncio.sleep(max(0.0, self._deadline - time.monotonic()))
        self._modelled += seconds
        self._step_s = 0.0

    def begin_serving(self) -> None:
        """From here on modelled time runs by itself."""
        self._mark = time.monotonic()
        self._serving = True
