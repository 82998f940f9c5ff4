"""
A session as its file says it, and the plan it resolves to.

A session file is also what papermill injects, so its keys are the notebook's parameters: flat, plain
values, the same names and the same defaults.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field, SerializeAsAny, ValidationError, ValidationInfo, field_validator

from k3lib.errors import SpecError
from k3lib.spec.campaign import Campaign
from k3lib.spec.model import Fact, Strict
from k3lib.spec.order import NodeOrder
from k3lib.spec.request import FrozenRequest
from k3lib.spec.settings import ChangeGroup, Difference, EngineSettings, name_changes
from k3lib.spec.validation import refuse
from k3lib.spec.vocabulary import HostLink, Phase, StageName


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


class CompatibilitySpec(SessionSpec):
    """
    Stage 20: what was looked at, what the team may change, and what was ordered. Nothing is changed or started.

    Args:
        evidence: Files of the collector, of hosts and of containers; empty looks at this machine.
        container: Name of the engine's container on this machine, looked at from inside; empty is none.
        image: The image as it is named, with its digest if there is one; empty is none.
        link: What joins the hosts, `nvlink`, `rdma` or `ethernet`; empty is not known.
        weights_folder: Where the weights are, or are to be; empty is the model's own folder, if it is one.
        driver, official_image, network, all_to_all, prefill_decode_split, replay: The six questions in order:
            `yes`, `no`, or empty for not known; a condition may follow a comma, `yes, in six weeks`.
        ordered: What was ordered of a rented node, in the words of `NodeOrder`; empty is no order.
        recipe_max_age_days: A recipe older than this is called old, days.
    """

    evidence: list[str] = Field(default_factory=list)
    container: str = ""
    image: str = ""
    link: str = ""
    weights_folder: str = ""
    driver: str = ""
    official_image: str = ""
    network: str = ""
    all_to_all: str = ""
    prefill_decode_split: str = ""
    replay: str = ""
    ordered: dict[str, Any] = Field(default_factory=dict)
    recipe_max_age_days: int = Field(default=14, ge=0)

    @field_validator(
        "driver", "official_image", "network", "all_to_all", "prefill_decode_split", "replay", mode="before"
    )
    @classmethod
    def _yes_or_no(cls, answer: Any) -> Any:
        """YAML reads a bare yes as true; both are meant."""
        text = ("yes" if answer else "no") if isinstance(answer, bool) else answer
        if isinstance(text, str) and text and text.partition(",")[0].strip().lower() not in ("yes", "no"):
            raise refuse(f"{text!r} is no answer", expected="yes, no, or empty; a condition may follow a comma")
        return text

    @field_validator("link")
    @classmethod
    def _known_link(cls, link: str) -> str:
        if link and link not in set(HostLink):
            raise refuse(f"no link {link}", expected=f"one of {', '.join(HostLink)}, or empty")
        return link

    @field_validator("ordered")
    @classmethod
    def _an_order(cls, ordered: dict[str, Any]) -> dict[str, Any]:
        try:
            NodeOrder.model_validate_json(json.dumps(ordered))
        except ValidationError as problem:
            first = problem.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            known = ", ".join(NodeOrder.model_fields)
            raise refuse(f"{key}: {first['msg']}", expected=f"an order in these words: {known}") from None
        return ordered

    def answers(self) -> dict[str, str]:
        """The six answers by the name of what is controlled, in order."""
        return {
            "driver": self.driver,
            "image": self.official_image,
            "network": self.network,
            "all_to_all": self.all_to_all,
            "prefill_decode_split": self.prefill_decode_split,
            "replay": self.replay,
        }


class SceneSpec(SessionSpec):
    """
    A session that freezes the scene and changes nothing.

    Args:
        container: Name of the engine's container, or empty.
        evidence: Files with the collector's JSON from other machines or from inside the container.
        log: File of the log of the failing evening, or empty.
        nothing_failed: Empty, or why there is no error to keep; recorded.
    """

    container: str = ""
    evidence: list[str] = Field(default_factory=list)
    log: str = ""
    nothing_failed: str = ""


SESSION_MODELS: dict[StageName, type[SessionSpec]] = {
    StageName.SCENE: SceneSpec,
    StageName.COMPATIBILITY: CompatibilitySpec,
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


def plan_arms(spec: SessionSpec, base: EngineSettings, *, source: str = "the session") -> list[Arm]:
    """
    The arms of a session.

    Args:
        spec: The session.
        base: The settings it starts from.
        source: The session file's name, for the error.

    Returns:
        One arm per value; a single `base` without a change.

    Raises:
        SpecError: No such setting, a value of the wrong type, a value twice, or the one value that the base has.
    """
    change = spec.change if isinstance(spec, TrialSpec) else {}
    if not change:
        return [Arm(name="base", settings=base)]
    ((key, given),) = change.items()
    values = given if isinstance(given, list) else [given]
    try:
        arms = [Arm(name=f"{key}={_word(value)}", settings=base.with_change(key, value)) for value in values]
    except SpecError as problem:
        raise SpecError(
            f"{source}: change.{key}: {problem.what}",
            expected=problem.expected,
            evidence=problem.evidence,
            next=problem.next,
        ) from None
    _refuse_no_change(f"{source}: change.{key}", arms, base)
    return arms


def _refuse_no_change(place: str, arms: list[Arm], base: EngineSettings) -> None:
    """Two arms alike cannot be told apart; a single arm like the base is a repetition that says it is none."""
    names = [arm.name for arm in arms]
    twice = sorted({arm.name for i, arm in enumerate(arms) if arm.settings in [a.settings for a in arms[:i]]})
    if twice:
        raise SpecError(
            f"{place}: a value stands twice: {', '.join(twice)}",
            expected="each value once; every arm is started as often as trials says",
            evidence=", ".join(names),
            next="take the repeated value out, and raise trials for more starts",
        )
    if len(arms) == 1 and not base.differences(arms[0].settings):
        raise SpecError(
            f"{place}: this changes nothing",
            expected="a value that the base does not have",
            evidence=names[0],
            next="write change: {} for a repetition of the base",
        )


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
    refuse_more_than_one(list(found.values()), plan.baseline)
    return list(found.values())


def add_place_changes(plan: SessionPlan, changes: Sequence[Difference]) -> SessionPlan:
    """
    The plan with what has changed about the place since the last stable session.

    Args:
        plan: The session to come, with the differences of settings and identity.
        changes: One difference per independent change of the fingerprint.

    Returns:
        The plan with both; what a group or a field says twice is said once.

    Raises:
        SpecError: Two or more, with the names of all (R-29).
    """
    known = {difference.change for difference in plan.differences}
    added = [difference for difference in changes if difference.change not in known]
    both = [*plan.differences, *added]
    refuse_more_than_one(both, plan.baseline)
    return plan.model_copy(update={"differences": both})


def refuse_more_than_one(differences: Sequence[Difference], baseline: str | None) -> None:
    """Raises SpecError if these are two or more independent changes against the last stable session."""
    variables = name_changes(differences)
    if len(variables) > 1:
        raise SpecError(
            f"{len(variables)} variables differ from the last stable session {baseline}",
            expected="at most one changed setting per session (a group counts as one)",
            evidence="; ".join(f"{d.key}: {_word(d.ours)} → {_word(d.theirs)}" for d in differences),
            next="undo all but one, in the parameter files or on the machine (k3 diff explains), "
            "and give the others sessions of their own",
        )


_GROUPS = {
    "engine.version": ChangeGroup.IMAGE,
    "engine.program": ChangeGroup.IMAGE,
    "rehearsal.machine": ChangeGroup.SITE,
}


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
