"""
A session as its file says it, and the plan it resolves to.

A session file is also what papermill injects, so its keys are the notebook's parameters: flat, plain
values, the same names and the same defaults.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator

from k3lib.errors import SpecError
from k3lib.spec.campaign import Campaign
from k3lib.spec.model import Fact, Strict
from k3lib.spec.request import FrozenRequest
from k3lib.spec.settings import ChangeGroup, Difference, EngineSettings, name_changes
from k3lib.spec.validation import refuse
from k3lib.spec.vocabulary import Phase, StageName


class SessionSpec(Strict):
    """
    What every session file may say; a stage with more to say has a model of its own below.

    Args:
        campaign: Name of a folder under params/, or a path to one.
        accept_gate: Empty, or the reason for opening a closed gate by hand; recorded.
        note: Free text for the reader.
    """

    campaign: str = "rehearsal"
    accept_gate: str = ""
    note: str = ""


class TrialSpec(SessionSpec):
    """
    A session that starts engines: at most one changed setting.

    Args:
        change: The one changed setting: name and value, or name and list of values (the arms).
        trials: Fresh starts of the engine per arm.
        expect_phase: Empty, or the phase in which the failure to reproduce stands.
    """

    change: dict[str, Any] = Field(default_factory=dict)
    trials: int = Field(default=5, ge=1, le=100)
    expect_phase: str = ""

    @field_validator("change")
    @classmethod
    def _one_change(cls, change: dict[str, Any]) -> dict[str, Any]:
        if len(change) > 1:
            raise refuse(
                f"{len(change)} changes in one session: {', '.join(change)}",
                expected="at most one changed setting per session",
                next="keep one, and give each other change a session of its own",
            )
        for value in change.values():
            if isinstance(value, list) and not value:
                raise refuse("an empty list of values", expected="one value, or a list of values (the arms)")
        return change

    @field_validator("expect_phase")
    @classmethod
    def _known_phase(cls, phase: str) -> str:
        if phase and phase not in set(Phase):
            raise refuse(f"no phase {phase}", expected=f"one of {', '.join(Phase)}, or empty")
        return phase


SESSION_MODELS: dict[StageName, type[SessionSpec]] = {
    StageName.MINIMAL_START: TrialSpec,
    StageName.SINGLE_REQUEST: TrialSpec,
}
"""What the session file of each stage, and so its notebook, may say; a stage that is not here says the common part."""


class Arm(Fact):
    """
    One value of the changed setting, with everything that it then means.

    Args:
        name: `base`, or `prefix_caching=true`.
        settings: All engine settings of the arm.
    """

    name: str
    settings: EngineSettings


class SessionPlan(Fact):
    """
    What a session intends: every setting, which one changed, and against what.

    Args:
        stage: The step of the calendar; the number before the session file's name says it.
        spec: The session file.
        campaign: The campaign file.
        arms: One per value of the change; one called `base` without a change.
        request: The frozen request, with its id.
        request_id: SHA-256 of the body, 16 hex digits.
        release: Release that the settings are rendered for.
        baseline: Name of the last stable session, or None for the first.
        differences: What differs from the baseline; at most one, a group counts once.
        gate_accepted: Why a closed gate was opened by hand, or None.
    """

    stage: StageName
    spec: SerializeAsAny[SessionSpec]
    campaign: Campaign
    arms: list[Arm]
    request: FrozenRequest
    request_id: str
    release: str
    baseline: str | None = None
    differences: list[Difference] = Field(default_factory=list)
    gate_accepted: str | None = None

    @field_validator("spec", mode="wrap")
    @classmethod
    def _by_stage(cls, spec: Any, handler: Any, info: ValidationInfo) -> SessionSpec:
        """Read back, a session file is again what its stage makes of it."""
        if isinstance(spec, SessionSpec):
            return spec
        return SESSION_MODELS.get(info.data["stage"], SessionSpec).model_validate(spec, extra="ignore")

    @property
    def change(self) -> dict[str, Any]:
        """The one changed setting, or nothing."""
        return self.spec.change if isinstance(self.spec, TrialSpec) else {}

    @property
    def expect_phase(self) -> str:
        """The phase in which the failure to reproduce stands, or nothing."""
        return self.spec.expect_phase if isinstance(self.spec, TrialSpec) else ""

    @property
    def served_model(self) -> str:
        """The name that requests use."""
        return self.campaign.model.served_as or self.campaign.model.name

    def trials(self) -> list[tuple[int, Arm]]:
        """Trial numbers from 1 with their arms: arms take turns, so that a drift meets all alike."""
        count = self.spec.trials if isinstance(self.spec, TrialSpec) else 0
        return list(enumerate([arm for _ in range(count) for arm in self.arms], start=1))


def stage_of(name: str) -> StageName:
    """
    The stage that a session file or a notebook belongs to, by its number.

    Args:
        name: File name, with or without a path and an ending.

    Raises:
        SpecError: No stage has this number.

    >>> stage_of("params/cpu/30_minimal_start-second.yaml").value
    '30_minimal_start'
    """
    short = name.rsplit("/", 1)[-1]
    for stage in StageName:
        if short.split("_", 1)[0] == stage.value[:2]:
            return stage
    raise SpecError(
        f"{name} names no stage",
        expected=f"a name that begins with the number of a stage: {', '.join(s.value for s in StageName)}",
        evidence=short,
        next="rename the file, for example 30_minimal_start.yaml",
    )


def plan_arms(spec: SessionSpec, base: EngineSettings) -> list[Arm]:
    """
    The arms of a session.

    Args:
        spec: The session.
        base: The settings it starts from.

    Returns:
        One arm per value; a single `base` without a change.

    Raises:
        SpecError: No such setting, or a value of the wrong type.
    """
    change = spec.change if isinstance(spec, TrialSpec) else {}
    if not change:
        return [Arm(name="base", settings=base)]
    ((key, given),) = change.items()
    values = given if isinstance(given, list) else [given]
    return [Arm(name=f"{key}={_word(value)}", settings=base.with_change(key, value)) for value in values]


def check_one_variable(plan: SessionPlan, identity: dict[str, object], settings: dict[str, object]) -> list[Difference]:
    """
    What a planned session changes against the last stable one; more than one difference is refused.

    Args:
        plan: The session to come.
        identity: `Campaign.identity()` of the last stable session.
        settings: Flat settings of the arm that was stable there.

    Returns:
        The differences over all arms, each named once; a group counts as one.

    Raises:
        SpecError: Two or more, with the names of all (R-29).
    """
    found: dict[str, Difference] = {}
    before = EngineSettings.from_flat(settings)
    for arm in plan.arms:
        for difference in before.differences(arm.settings):
            found.setdefault(difference.key, difference)
    for key, now in plan.campaign.identity().items():
        if identity.get(key) != now:
            found[key] = Difference(key=key, ours=identity.get(key), theirs=now, group=_GROUPS.get(key))
    variables = name_changes(found.values())
    if len(variables) > 1:
        names = "; ".join(f"{d.key}: {_word(d.ours)} → {_word(d.theirs)}" for d in found.values())
        raise SpecError(
            f"{len(variables)} variables differ from the last stable session {plan.baseline}",
            expected="at most one changed setting per session (a group counts as one)",
            evidence=names,
            next="undo all but one in campaign.yaml or the session file, and give the others sessions of their own",
        )
    return list(found.values())


_GROUPS = {
    "engine.version": ChangeGroup.IMAGE,
    "engine.program": ChangeGroup.IMAGE,
    "rehearsal.machine": ChangeGroup.SITE,
}


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
