"""From parameter files to a plan that may run: everything that can be refused is refused here, before any start."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3lib.errors import GateClosed, KnowledgeError, LaunchError, SpecError
from k3lib.judge.gates import Gate, SessionSummary, find_last_stable, judge_gate
from k3lib.knowledge.hardware import find_machine
from k3lib.knowledge.scenarios import find_scenario
from k3lib.knowledge.versions import parse_release
from k3lib.launch.command import render_command
from k3lib.launch.engines import check_plan
from k3lib.launch.programs import find_program, read_version
from k3lib.record.parameters import Places, list_session_files, read_campaign, read_request
from k3lib.record.redactor import learn_secrets, load_redactor, redact_model
from k3lib.record.sessions import summarize_sessions
from k3lib.spec.campaign import Campaign, EnginePlace, Rehearsal
from k3lib.spec.launch import LaunchPlan
from k3lib.spec.session import Arm, SessionPlan, SessionSpec, TrialSpec, check_one_variable, plan_arms, stage_of
from k3lib.spec.vocabulary import EngineKind, Provenance, StageName


@dataclass(frozen=True)
class Prepared:
    """
    A session that may run.

    Args:
        places: The workbook's folders.
        plan: Every setting, and which one changed.
        gate: The gate that lets it in.
        program: The words before `serve`.
        model: The model as the command names it: a repository, or an absolute folder.
    """

    places: Places
    plan: SessionPlan
    gate: Gate
    program: tuple[str, ...]
    model: str

    @property
    def provenance(self) -> Provenance:
        """Where the evidence will come from."""
        kind = self.plan.campaign.engine.kind
        if kind is EngineKind.REHEARSAL:
            return Provenance.REHEARSAL
        return Provenance.LOGS if kind is EngineKind.LOGS else Provenance.ENGINE


def prepare_session(places: Places, stage: StageName, spec: SessionSpec, *, source: str = "the session") -> Prepared:
    """
    Resolve a session against its campaign and what ran before, and check all that can be checked.

    Args:
        places: The workbook's folders.
        stage: The step of the calendar.
        spec: The session.
        source: The name of its file, for the error.

    Returns:
        The plan, with its gate.

    Raises:
        SpecError: A file is wrong, the change is no setting, or more than one variable differs.
        GateClosed: The stage before has not passed.
        LaunchError: No program, no model, or the port is taken; nothing was started.
    """
    campaign, folder = read_campaign(places, spec.campaign)
    learn_secrets(campaign, spec)
    arms = plan_arms(spec, campaign.base, source=source)
    _check_known(places, stage, campaign)
    earlier = summarize_sessions(places.outputs / campaign.name)
    gate = judge_gate(
        stage.value, _calendar(folder), earlier, spec.accept_gate or None, starts_at=campaign.starts_at.value
    )
    if not gate.open:
        raise _closed(gate)
    program = _find_program(places, campaign, starts=isinstance(spec, TrialSpec))
    plan = _resolve_plan(places, stage, spec, campaign, arms, program, earlier)
    prepared = Prepared(places, plan, gate, tuple(program), _resolve_model(places, campaign.model.name))
    for arm in plan.arms if plan.trials() else []:
        check_plan(plan_launch(prepared, arm))
    return prepared


def prepare_again(places: Places, plan: SessionPlan, campaign: Campaign) -> Prepared:
    """
    An earlier session's plan on this machine as it is today, to look and not to run.

    Args:
        places: The workbook's folders.
        plan: What that session intended.
        campaign: The campaign as its file says today.
    """
    learn_secrets(campaign)
    program = _find_program(places, campaign, starts=False)
    release = campaign.engine.version or (read_version(program) if program else None) or "unknown"
    today = plan.model_copy(update={"campaign": campaign, "release": release})
    gate = Gate(stage=plan.stage.value, open=True, needs=None)
    return Prepared(places, today, gate, tuple(program), _resolve_model(places, campaign.model.name))


def _check_known(places: Places, stage: StageName, campaign: Campaign) -> None:
    """Names that only an engine or a kernel would stumble over."""
    if not (places.notebooks / f"{stage.value}.ipynb").is_file():
        raise SpecError(
            f"stage {stage.value} has no notebook in this version",
            expected=f"notebooks/{stage.value}.ipynb",
            evidence=f"{places.notebooks} holds {', '.join(p.stem for p in sorted(places.notebooks.glob('*.ipynb')))}",
            next="run another stage",
        )
    version = campaign.engine.version
    if version is not None and not parse_release(version).known:
        raise SpecError(
            f"engine.version {version} is no release",
            expected="a release such as 0.33.0 or 0.32.0+cpu, or nothing: then the program is asked",
            evidence=f"engine.version = {version}",
            next="write what `vllm --version` prints",
        )
    if campaign.engine.kind is not EngineKind.REHEARSAL:
        return
    played = campaign.engine.rehearsal or Rehearsal()
    try:
        find_scenario(played.scenario)
        if played.machine is not None:
            find_machine(played.machine)
    except KnowledgeError as unknown:
        raise SpecError(unknown.what, expected=unknown.expected, evidence=unknown.evidence, next=unknown.next) from None


def _find_program(places: Places, campaign: Campaign, *, starts: bool) -> list[str]:
    """The words before `serve`; a session that only looks goes without where there is no program."""
    try:
        return find_program(campaign.engine.kind, _resolve_program(places, campaign))
    except LaunchError:
        if starts:
            raise
        return []


def _resolve_plan(
    places: Places,
    stage: StageName,
    spec: SessionSpec,
    campaign: Campaign,
    arms: list[Arm],
    program: list[str],
    earlier: list[SessionSummary],
) -> SessionPlan:
    request = read_request(places, campaign.request)
    stable = find_last_stable(earlier)
    plan = SessionPlan(
        stage=stage,
        spec=spec,
        campaign=campaign,
        arms=arms,
        request=request,
        request_id=request.request_id(campaign.model.served_as or campaign.model.name),
        release=campaign.engine.version or (read_version(program) if program else None) or "unknown",
        baseline=stable.name if stable else None,
        gate_accepted=spec.accept_gate or None,
    )
    if stable is None or not plan.trials():
        return plan  # a session that starts nothing changes nothing
    # What was kept is redacted, so both sides are: the same secret has the same placeholder.
    then: Any = load_redactor().value({"identity": stable.identity, "settings": stable.settings})
    differences = check_one_variable(redact_model(plan), then["identity"], then["settings"])
    return plan.model_copy(update={"differences": differences})


def plan_launch(prepared: Prepared, arm: Arm, trial: int = 1) -> LaunchPlan:
    """
    One start of an arm, complete.

    Args:
        prepared: The session.
        arm: Which values.
        trial: Its number; the rehearsal draws anew for each, from the campaign's seed.

    Returns:
        The plan; a free port is chosen where the campaign leaves it open.
    """
    place = prepared.plan.campaign.engine
    port = place.port or _free_port(place.host)
    command = render_command(
        list(prepared.program),
        prepared.model,
        arm.settings,
        release=parse_release(prepared.plan.release),
        host=place.host,
        port=port,
        served_model_name=prepared.plan.campaign.model.served_as,
    )
    return LaunchPlan(
        kind=place.kind,
        argv=command.argv,
        env={**command.env, **_rehearsal_variables(place, trial)},
        host=place.host,
        port=port,
        ready_timeout_s=place.ready_timeout_s,
        stop_grace_s=place.stop_grace_s,
        token=f"k3-{secrets.token_hex(8)}",
        model_path=prepared.model if prepared.model.startswith("/") else None,
        cwd=str(prepared.places.root),
    )


def _rehearsal_variables(place: EnginePlace, trial: int) -> dict[str, str]:
    if place.kind is not EngineKind.REHEARSAL:
        return {}
    played = place.rehearsal or Rehearsal()
    chosen: dict[str, Any] = {
        "K3_REHEARSAL_RELEASE": place.version,
        "K3_REHEARSAL_SCENARIO": played.scenario,
        "K3_REHEARSAL_MACHINE": played.machine,
        "K3_REHEARSAL_SPEED": played.speed,
        "K3_REHEARSAL_SEED": played.seed + trial,
    }
    return {name: str(value) for name, value in chosen.items() if value is not None}


def _calendar(folder: Path) -> list[str]:
    return [stage_of(file.name).value for file in list_session_files(folder)]


def _resolve_program(places: Places, campaign: Campaign) -> str | None:
    program = campaign.engine.program
    if program is None or "/" not in program:
        return program
    return str((places.root / Path(program).expanduser()).absolute())


def _resolve_model(places: Places, name: str) -> str:
    """A name that begins like a path is one, from the workbook's folder; `owner/name` is a repository."""
    if name.startswith(("/", "./", "../", "~", ".")):
        return str((places.root / Path(name).expanduser()).resolve())
    return name


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError as problem:
            raise SpecError(
                f"engine.host {host} cannot be listened on",
                expected="an address of this machine",
                evidence=str(problem),
                next="use 127.0.0.1, or an address that `ip address` shows",
            ) from None
        port: int = probe.getsockname()[1]
        return port


def _closed(gate: Gate) -> GateClosed:
    return GateClosed(
        f"the gate of {gate.stage} is closed",
        expected=f"a session of {gate.needs} that passed",
        evidence=gate.reason,
        next=f'run {gate.needs} first, or open it by hand with accept_gate: "the reason" (recorded)',
    )
