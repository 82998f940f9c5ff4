"""Everything that one rehearsed engine needs from its start to its end."""

from __future__ import annotations

from dataclasses import dataclass

from k3lib.rehearsal.clock import ModelClock
from k3lib.rehearsal.config import EngineConfig, Stage
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.memory import MemoryPlan
from k3lib.rehearsal.wording import Wording


@dataclass(frozen=True)
class Scene:
    """
    One engine, or one node of it.

    Args:
        config: What runs.
        stage: On what, and what is rehearsed.
        plan: Where its memory goes.
        clock: Its time.
        journal, say: Its log, and the log's words.
    """

    config: EngineConfig
    stage: Stage
    plan: MemoryPlan
    clock: ModelClock
    journal: Journal
    say: Wording
