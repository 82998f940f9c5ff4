"""`k3 diff`: two fingerprints, snapshots or sessions, every difference in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from k3lib.errors import InputError
from k3lib.judge.drift import DriftReport, compare_fingerprints
from k3lib.probe.fingerprint import Subject, compose_fingerprint
from k3lib.probe.snapshot import parse_collected, read_snapshot
from k3lib.record.files import is_file
from k3lib.record.parameters import Places
from k3lib.record.paths import SessionPaths
from k3lib.record.sessions import find_session
from k3lib.report.drift import describe_place, render_condition, render_drift, render_drift_text, summarize_drift
from k3lib.report.sentences import Language
from k3lib.spec.fingerprint import Fingerprint
from k3lib.spec.settings import name_changes
from k3lib.spec.snapshot import Snapshot
from k3lib.spec.vocabulary import Outcome
from k3lib.workbook.place import redact_fingerprint


@dataclass(frozen=True)
class Comparison:
    """
    Two places or moments, compared.

    Args:
        before, after: As they were named.
        report: What differs.
        language: Of the text.
    """

    before: str
    after: str
    report: DriftReport
    language: Language = "en"

    @property
    def exit_code(self) -> int:
        """0 equal, 3 drift, 125 if nothing differs but one side knows less than the other."""
        return {Outcome.PASS: 0, Outcome.FAIL: 3}.get(self.report.outcome, 125)

    def as_dict(self) -> dict[str, Any]:
        """The same for `--json`."""
        report = self.report
        return {
            "before": self.before,
            "after": self.after,
            "drift": report.drifted,
            "summary": summarize_drift(report, self.language),
            "same_place": report.same_place,
            "place": describe_place(report, self.language),
            "voids": report.voids.value,
            "changes": name_changes(report.changes),
            "differences": [
                d.model_dump(mode="json") | dict(zip(("sentence", "next"), render_drift(d, self.language), strict=True))
                for d in report.differences
            ],
            **{
                name: [
                    c.model_dump(mode="json")
                    | dict(zip(("sentence", "next"), render_condition(c, self.language), strict=True))
                    for c in conditions
                ]
                for name, conditions in (
                    ("appeared", report.appeared),
                    ("stayed", report.stayed),
                    ("gone", report.gone),
                )
            },
            "unknown": [u.model_dump(mode="json") for u in report.unknown],
        }

    def __str__(self) -> str:
        return f"{self.before}\n{self.after}\n{render_drift_text(self.report, self.language)}"


def compare_named(places: Places, before: str, after: str, language: Language = "en") -> Comparison:
    """
    Compare what two words name.

    Args:
        places: The workbook's folders.
        before, after: A fingerprint.json, the collector's JSON, a session's folder or name, or `last`.
        language: Of the text.

    Returns:
        The comparison; both sides pass the redactor, so that placeholders meet placeholders.

    Raises:
        InputError: A file is neither a fingerprint nor the collector's JSON.
        SpecError: No such session.
    """
    sides = [read_side(places, name) for name in (before, after)]
    return Comparison(before, after, compare_fingerprints(*sides), language)


def read_side(places: Places, name: str) -> Fingerprint:
    """The fingerprint that a word names; raises as `compare_named` does."""
    file = Path(name).expanduser()
    if not is_file(file):
        paths = find_session(places.outputs, name)
        return _read_file(paths.fingerprint) if paths.fingerprint.exists() else _no_side(paths)
    return _read_file(file)


def _read_file(file: Path) -> Fingerprint:
    content = file.read_bytes()
    try:
        value: Any = orjson.loads(content)
    except orjson.JSONDecodeError as problem:
        raise _unreadable(file, str(problem)) from None
    if not isinstance(value, Mapping):
        raise _unreadable(file, f"it holds a {type(value).__name__}")
    if "snapshot" in value:  # a view of a frozen scene
        return _from_snapshot(Snapshot.model_validate(value["snapshot"]))
    if "sources" in value and "collector" in value:
        return _from_snapshot(read_snapshot(parse_collected(content, str(file))))
    # Any JSON could be read as an empty fingerprint; only one that says what it is may be.
    if not (value.get("identity") or value.get("noise")):
        raise _unreadable(file, f"its keys are {', '.join(list(value)[:8]) or 'none'}")
    return Fingerprint.model_validate(value)


def _from_snapshot(snapshot: Snapshot) -> Fingerprint:
    """A place without an engine: what only an engine has is left out, so that it is neither known nor missing."""
    whole = redact_fingerprint(compose_fingerprint(Subject(model=""), {"": snapshot}))
    engine = ("engine.", "model.", "program")
    return whole.model_copy(
        update={
            "identity": {name: value for name, value in whole.identity.items() if not name.startswith(engine)},
            "factor": {},
        }
    )


def _no_side(paths: SessionPaths) -> Fingerprint:
    raise InputError(
        f"{paths.name} has no fingerprint",
        expected=f"{paths.fingerprint}",
        evidence="the file is not there",
        next="name another session, or a file of the collector",
    )


def _unreadable(file: Path, evidence: str) -> InputError:
    return InputError(
        f"{file} is neither a fingerprint nor a snapshot",
        expected="a session's fingerprint.json, or the JSON that the collector prints",
        evidence=evidence,
        next="k3 doctor --script > collector.py; python3 collector.py > host.json; k3 diff host.json other.json",
    )
