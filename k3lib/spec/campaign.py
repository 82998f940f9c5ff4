"""
A campaign as its file says it: one investigation, its engine, its base and its frozen request.

The file is `params/<campaign>/campaign.yaml`; the session files beside it are its calendar.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from k3lib.spec.model import Strict
from k3lib.spec.settings import EngineSettings
from k3lib.spec.vocabulary import EngineKind, Objective, StageName


class Rehearsal(Strict):
    """
    What the stand-in engine plays.

    Args:
        scenario: Name of a scenario, `k3 scenarios` lists them.
        machine: Name of a machine profile.
        speed: How many modelled seconds pass in one; None is the rehearsal's own default.
        seed: Seed of everything drawn at random.
    """

    scenario: str = "healthy"
    machine: str | None = None
    speed: float | None = Field(default=None, gt=0)
    seed: int = 0


class EnginePlace(Strict):
    """
    How the engine is reached.

    Args:
        kind: `rehearsal`, `local`, `docker`, `slurm`, `attach` or `logs`.
        program: The engine's program or its virtual environment; None finds the kind's own.
        version: Release that the settings are written for; None asks the program.
        host: Address to bind, loopback unless told.
        port: Port to serve on; None takes a free one for each trial.
        ready_timeout_s: Longest wait for /health, seconds.
        stop_grace_s: Wait between the polite and the hard stop, seconds.
        rehearsal: Only for the kind rehearsal.
    """

    kind: EngineKind
    program: str | None = None
    version: str | None = None
    host: str = "127.0.0.1"
    port: int | None = Field(default=None, ge=1, le=65535)
    ready_timeout_s: float = Field(default=600.0, gt=0)
    stop_grace_s: float = Field(default=10.0, ge=0)
    rehearsal: Rehearsal | None = None


class ModelSource(Strict):
    """
    Which weights. Part of identity, with the shard list, quantisation and load format.

    Args:
        name: Repository, `moonshotai/Kimi-K3`, or a folder.
        revision: Commit of the repository; None means whatever is there, and is reported.
        served_as: Name that requests use; None is the name itself.
    """

    name: str
    revision: str | None = None
    served_as: str | None = None


class Control(Strict):
    """What the team may change; None is not known yet (R-48, R-51)."""

    driver: bool | None = None
    image: bool | None = None
    network: bool | None = None
    all_to_all: bool | None = None
    prefill_decode_split: bool | None = None
    replay: bool | None = None


class Campaign(Strict):
    """
    One investigation.

    Args:
        schema_version: Of this file; 1.
        name: Short name, the folder's.
        title: One line for people.
        objective: What it is for; the same measurements can end in different verdicts.
        engine: How the engine is reached.
        model: Which weights.
        base: The settings every session starts from. Prefix caching is said, never left to a default.
        request: The frozen single request, a file under params/requests/.
        control: What the team may change.
        monitoring: Whether the service is watched in production; None is not known.
        starts_at: The latest stage that may run without any session before it. A real node keeps the scene
            first; a campaign to try things out may begin at the minimal start. A session that failed closes
            the gate all the same.
    """

    schema_version: Literal[1] = 1
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = ""
    objective: Objective
    engine: EnginePlace
    model: ModelSource
    base: EngineSettings
    request: str
    control: Control = Control()
    monitoring: bool | None = None
    starts_at: StageName = StageName.SCENE

    def identity(self) -> dict[str, object]:
        """
        What the engine is, beside its settings, as flat names; two sessions that differ here differ.

        Returns:
            Names such as `engine.version` and `model.revision`, values as given.
        """
        engine, model = self.engine, self.model
        played = engine.rehearsal or Rehearsal()
        flat: dict[str, object] = {
            "engine.kind": engine.kind.value,
            "engine.program": engine.program,
            "engine.version": engine.version,
            "model.name": model.name,
            "model.revision": model.revision,
        }
        if engine.kind is EngineKind.REHEARSAL:
            flat |= {"rehearsal.scenario": played.scenario, "rehearsal.machine": played.machine}
        return flat
