"""
`record.json`: everything that a session found. The schema only grows.

A reader ignores keys it does not know and fills those it misses with their defaults, so an older
archive opens in a newer product and the other way round.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from k3lib.judge.checklist import ChecklistItem
from k3lib.judge.gates import Gate
from k3lib.judge.scene_items import SceneItem
from k3lib.judge.trial import TrialRecord
from k3lib.judge.verdict import Verdict
from k3lib.spec.model import Fact
from k3lib.spec.session import SessionPlan
from k3lib.spec.vocabulary import Outcome, Provenance, SessionState
from k3lib.stats.measurement import Measurement

SCHEMA_VERSION = 1


class SessionInfo(Fact):
    """
    Who ran a session, when, and how it ended.

    Args:
        name: The folder's name.
        campaign: The campaign's name.
        stage: The stage's name.
        state: How it ended.
        reason: Why, if it was not closed in order.
        started_at, ended_at: Wall clock, ISO 8601 with offset.
        pid: Process that ran it, for finding out whether it still does.
        provenance: Real engine, rehearsal or saved logs.
    """

    name: str
    campaign: str
    stage: str
    state: SessionState
    reason: str | None = None
    started_at: str
    ended_at: str | None = None
    pid: int
    pid_started: float
    provenance: Provenance


class Record(Fact):
    """
    Everything a session found.

    Args:
        schema_version: Of this file.
        product: Version of the workbook that wrote it.
        session: Who, when, how it ended.
        plan: What was intended.
        fingerprint: Where it ran: identity, factor and noise.
        trials: In order.
        measurements: Numbers with unit, n and interval.
        checklist: The seven steps of a proof of concept (R-27), computed.
        scene: The eight items of a scene (R-10), for stage 10.
        verdicts: What the rules found.
        outcome: Of the stage.
        comparable: False if something changed during the run; reasons says what.
        gate: The gate that let it in.
    """

    schema_version: int = SCHEMA_VERSION
    product: str
    session: SessionInfo
    plan: SessionPlan
    fingerprint: dict[str, Any] = Field(default_factory=dict)
    trials: list[TrialRecord] = Field(default_factory=list)
    measurements: list[Measurement] = Field(default_factory=list)
    checklist: list[ChecklistItem] = Field(default_factory=list)
    scene: list[SceneItem] = Field(default_factory=list)
    verdicts: list[Verdict] = Field(default_factory=list)
    outcome: Outcome = Outcome.SKIP
    comparable: bool = True
    reasons: list[str] = Field(default_factory=list)
    gate: Gate | None = None
