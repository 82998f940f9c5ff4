"""Session folders: made once, listed, found, never overwritten."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

import psutil

from k3lib.errors import RecordError, SpecError
from k3lib.judge.gates import SessionSummary
from k3lib.record.files import is_file, read_model, write_json, writing
from k3lib.record.paths import SessionPaths, TrialPaths
from k3lib.record.redactor import load_redactor, redact_model
from k3lib.record.schema import Record, SessionInfo
from k3lib.spec.session import SessionPlan
from k3lib.spec.vocabulary import Provenance, SessionState


def now_text() -> str:
    """The wall clock, ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def name_session(stage: str) -> str:
    """A name that sorts by time and says the stage: `20261130T181500Z-30_minimal_start`."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{stage}"


def create_session(outputs: Path, plan: SessionPlan, name: str, provenance: Provenance) -> SessionPaths:
    """
    A new folder with the intent and the state in it.

    Args:
        outputs: The folder of the archives.
        plan: What is intended.
        name: From `name_session`; a taken name gets `-2`, `-3`, …
        provenance: Where the evidence will come from.

    Returns:
        The session's paths.

    Raises:
        RecordError: The folder cannot be made.
    """
    campaign = outputs / plan.campaign.name
    try:
        campaign.mkdir(parents=True, exist_ok=True)
        paths = SessionPaths(_make_unused(campaign, name))
    except OSError as problem:
        raise RecordError(
            f"no session folder could be made in {campaign}",
            expected="a writable folder with space left",
            evidence=str(problem),
            next="free space, or choose another place with K3_OUTPUTS",
        ) from None
    info = SessionInfo(
        name=paths.name,
        campaign=plan.campaign.name,
        stage=plan.stage.value,
        state=SessionState.RUNNING,
        started_at=now_text(),
        pid=os.getpid(),
        pid_started=psutil.Process().create_time(),
        provenance=provenance,
    )
    write_json(paths.spec, redact_model(plan).model_dump(mode="json"))
    write_json(paths.state, info.model_dump(mode="json"))
    return paths


def create_trial(paths: SessionPaths, number: int) -> TrialPaths:
    """The folder of a new trial; its raw part is readable by its owner only."""
    trial = paths.trial(number)
    with writing(trial.folder):
        trial.folder.mkdir()
        trial.raw.mkdir(mode=0o700)
    return trial


def read_info(paths: SessionPaths) -> SessionInfo:
    """Who ran a session and how it ended; a run without its process reads as killed."""
    info = read_model(SessionInfo, paths.state)
    if info.state is SessionState.RUNNING and not _runs(info):
        return info.model_copy(
            update={"state": SessionState.KILLED, "reason": f"its process, pid {info.pid}, is gone and left no ending"}
        )
    return info


def write_info(paths: SessionPaths, info: SessionInfo) -> None:
    """Keep a new state, redacted."""
    reason = load_redactor().text(info.reason) if info.reason else None
    write_json(paths.state, info.model_copy(update={"reason": reason}).model_dump(mode="json"))


def read_plan(paths: SessionPaths) -> SessionPlan:
    """What the session intended, as it was kept: redacted. Compare it with `redact_model` of what is intended now."""
    return read_model(SessionPlan, paths.spec)


def read_record(paths: SessionPaths) -> Record:
    """
    What the session found.

    Raises:
        RecordError: No record yet, or not one of ours.
    """
    return read_model(Record, paths.record)


def write_record(paths: SessionPaths, record: Record) -> Record:
    """Keep the record, redacted, in one step; returns it as it was kept, the only one to show."""
    kept = redact_model(record)
    write_json(paths.record, kept.model_dump(mode="json"))
    return kept


def list_sessions(campaign: Path) -> list[SessionPaths]:
    """The sessions of a campaign's folder, oldest first."""
    if not campaign.is_dir():
        return []
    return [SessionPaths(p) for p in sorted(campaign.iterdir()) if (p / "spec.json").is_file()]


def summarize_sessions(campaign: Path) -> list[SessionSummary]:
    """What the gates need of each session, oldest first; one that left no record counts as not ended."""
    found = []
    for paths in list_sessions(campaign):
        try:
            info, plan = read_info(paths), read_plan(paths)
            record = read_record(paths) if paths.record.exists() else None
        except RecordError:
            continue
        arm = plan.arms[-1]
        found.append(
            SessionSummary(
                name=paths.name,
                stage=info.stage,
                state=info.state,
                outcome=record.outcome if record else None,
                comparable=record.comparable if record else False,
                reason=info.reason,
                identity=plan.campaign.identity(),
                settings=arm.settings.flat(),
                starts=bool(plan.trials()),
            )
        )
    return found


def find_session(outputs: Path, text: str) -> SessionPaths:
    """
    A session by its folder, by its name, or `last`.

    Raises:
        SpecError: No such session; names the nearest.
    """
    given = Path(text)
    if is_file(given / "spec.json"):
        return SessionPaths(given.resolve())
    every = sorted(
        (s for folder in outputs.glob("*") if folder.is_dir() for s in list_sessions(folder)), key=lambda s: s.name
    )
    if text == "last" and every:
        return every[-1]
    named = [s for s in every if s.name == given.name]
    if named:
        return named[-1]
    near = get_close_matches(given.name, [s.name for s in every], n=1)
    raise SpecError(
        f"no session {text}",
        expected="a session's folder, its name, or the word last",
        evidence=f"{len(every)} sessions under {outputs}",
        next=f"did you mean {near[0]}?" if near else "run one first, for example with `make week`",
    )


def _make_unused(campaign: Path, name: str) -> Path:
    for count in range(1, 1000):
        folder = campaign / (name if count == 1 else f"{name}-{count}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise OSError(f"{name} is taken a thousand times")


def _runs(info: SessionInfo) -> bool:
    try:
        process = psutil.Process(info.pid)
        # A killed process whose parent has not collected it yet is dead all the same.
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - info.pid_started) < 1
    except psutil.Error:
        return False
