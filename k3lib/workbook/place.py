"""The place of a session: looked at before the first start and after the last, held against the last stable one."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from pydantic import Field

from k3lib.errors import RecordError
from k3lib.judge.conditions import find_conditions
from k3lib.judge.drift import PlaceFacts, compare_fingerprints
from k3lib.knowledge.settings import debug_variables
from k3lib.probe.collection import ProbeError, Wanted, collect
from k3lib.probe.fingerprint import Subject, compose_fingerprint
from k3lib.probe.shells import LocalShell
from k3lib.probe.snapshot import read_snapshot
from k3lib.record.files import read_model, write_json
from k3lib.record.paths import SessionPaths
from k3lib.record.redactor import load_redactor
from k3lib.record.sessions import list_sessions, read_plan
from k3lib.spec.fingerprint import Fingerprint
from k3lib.spec.model import Fact
from k3lib.spec.session import add_place_changes
from k3lib.spec.snapshot import Snapshot
from k3lib.spec.vocabulary import EngineKind
from k3lib.workbook.prepare import Prepared


class _Baseline(Fact):
    """What stands in baseline.json: what a session is held against, and what was set for debugging before it."""

    session: str | None = None
    fingerprint: Fingerprint | None = None
    debug_before: list[str] = Field(default_factory=list)


def take_fingerprint(prepared: Prepared) -> Fingerprint:
    """
    This machine as the place of a session, redacted.

    Args:
        prepared: The session.

    Returns:
        The fingerprint; a machine that could not be looked at leaves its fields out, with the reason.
    """
    views: dict[str, Snapshot] = {}
    reasons: dict[str, str] = {}
    try:
        views[""] = read_snapshot(collect(LocalShell(sys.executable), Wanted(pythons=engine_pythons(prepared))))
    except ProbeError as problem:
        reasons = dict.fromkeys(("host", "gpus", "driver", "link", "limit", "mount"), problem.evidence)
    fingerprint = compose_fingerprint(subject_of(prepared), views)
    fingerprint = fingerprint.model_copy(update={"reasons": fingerprint.reasons | reasons})
    return redact_fingerprint(fingerprint)


def subject_of(prepared: Prepared, container: str = "") -> Subject:
    """The engine whose place is described."""
    campaign = prepared.plan.campaign
    return Subject(
        model=prepared.model,
        revision=campaign.model.revision,
        release=prepared.plan.release,
        program=campaign.engine.program or campaign.engine.kind.value,
        container=container or None,
        modelled=campaign.engine.kind is EngineKind.REHEARSAL,
    )


def engine_pythons(prepared: Prepared) -> list[str]:
    """The interpreter that executes the engine's program, so that versions are asked of it and of no other."""
    if prepared.plan.campaign.engine.kind is not EngineKind.LOCAL or not prepared.program:
        return []
    python = Path(prepared.program[0]).parent / "python"
    return [str(python)] if python.exists() else []


def redact_fingerprint(fingerprint: Fingerprint) -> Fingerprint:
    """The same with secrets and places replaced, in names too: the path of a mount is part of one."""
    return Fingerprint.model_validate(load_redactor().value(fingerprint.model_dump(mode="json")))


def settle_place(prepared: Prepared, fingerprint: Fingerprint) -> Prepared:
    """
    The session with what changed about its place among its differences.

    Args:
        prepared: The session, its settings already compared.
        fingerprint: Its place, redacted.

    Returns:
        The same session; one that starts no engine changes nothing and is left as it is.

    Raises:
        SpecError: Together with the session's own change that makes two or more (R-29).
    """
    before = _stable_fingerprint(prepared)
    if before is None or not prepared.plan.trials():
        return prepared
    changes = compare_fingerprints(before, fingerprint).changes
    return dataclasses.replace(prepared, plan=add_place_changes(prepared.plan, changes))


def write_place(paths: SessionPaths, prepared: Prepared, fingerprint: Fingerprint) -> None:
    """Keep where a session begins, and what it is held against, so that the folder alone tells it later."""
    write_json(paths.fingerprint, _dump(fingerprint))
    before = _stable_fingerprint(prepared)
    earlier = [s for s in list_sessions(paths.folder.parent) if s.name < paths.name]
    baseline = {
        "session": prepared.plan.baseline,
        "fingerprint": _dump(before) if before else None,
        "debug_before": _debug_of(earlier[-1]) if earlier else [],
    }
    write_json(paths.baseline, baseline)


def write_end(paths: SessionPaths, prepared: Prepared) -> None:
    """Keep where a session ends."""
    write_json(paths.fingerprint_end, _dump(take_fingerprint(prepared)))


def read_place(paths: SessionPaths) -> PlaceFacts:
    """The fingerprints around a session, from its folder alone."""
    kept = read_model(_Baseline, paths.baseline) if paths.baseline.exists() else _Baseline()
    return PlaceFacts(
        begin=read_fingerprint(paths.fingerprint) if paths.fingerprint.exists() else None,
        end=read_fingerprint(paths.fingerprint_end) if paths.fingerprint_end.exists() else None,
        baseline=kept.fingerprint,
        baseline_name=kept.session,
        debug_before=tuple(kept.debug_before),
    )


def read_fingerprint(file: Path) -> Fingerprint:
    """A fingerprint as it was kept; raises RecordError if the file is none."""
    return read_model(Fingerprint, file)


def _stable_fingerprint(prepared: Prepared) -> Fingerprint | None:
    if prepared.plan.baseline is None:
        return None
    campaign = prepared.places.outputs / prepared.plan.campaign.name
    try:
        return read_fingerprint(SessionPaths(campaign / prepared.plan.baseline).fingerprint)
    except RecordError:
        return None


def _debug_of(paths: SessionPaths) -> list[str]:
    """What an earlier session had set for debugging, by its settings or around it."""
    try:
        plan, place = read_plan(paths), read_place(paths)
    except RecordError:
        return []
    declared = [name for arm in plan.arms for name in debug_variables(arm.settings.environment)]
    around = [name for c in find_conditions(place.begin or Fingerprint()) for name in c.facts.get("names", [])
              if c.kind == "debug-variable"]  # fmt: skip
    return sorted({*declared, *around})


def _dump(fingerprint: Fingerprint) -> dict[str, Any]:
    return {"digest": fingerprint.digest, **fingerprint.model_dump(mode="json")}
