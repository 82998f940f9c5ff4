"""A damaged or full folder is told in four lines, by the name of what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from k3lib.errors import RecordError, SpecError
from k3lib.record.evidence import read_endpoint_state, read_launch, read_mark, redact_log
from k3lib.record.files import append_line
from k3lib.record.parameters import Places, read_campaign, read_request
from k3lib.record.paths import TrialPaths
from k3lib.record.sessions import find_session
from k3lib.redact import Redactor


@pytest.fixture
def trial(tmp_path: Path) -> TrialPaths:
    """A trial's folder with nothing in it."""
    made = TrialPaths(tmp_path / "trial-1")
    made.raw.mkdir(parents=True)
    return made


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"arm": 3, "launch": {}}', '{"arm": "base", "launch": null}'])
@pytest.mark.parametrize("read", [read_launch, read_mark])
def test_a_damaged_launch_is_named(trial: TrialPaths, read: Callable[[TrialPaths], object], content: str) -> None:
    """Not JSON, another shape or a missing key: the same error, with the file's name."""
    trial.launch.write_text(content)
    with pytest.raises(RecordError, match=r"launch\.json"):
        read(trial)


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_a_damaged_endpoint_is_named(trial: TrialPaths, content: str) -> None:
    """What the engine said of itself, half there, is no answer."""
    trial.endpoint.write_text(content)
    with pytest.raises(RecordError, match=r"endpoint\.json"):
        read_endpoint_state(trial)


def test_a_full_disk_under_a_line_is_our_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last block takes a part of the line, which the system makes no error of."""
    with pytest.raises(RecordError, match="could not be written"):
        append_line(tmp_path / "gone" / "events.jsonl", {})
    monkeypatch.setattr(os, "write", lambda _, line: len(line) - 1)
    with pytest.raises(RecordError) as refused:
        append_line(tmp_path / "events.jsonl", {})
    assert 4 == len(str(refused.value).splitlines())
    assert "No space left" in refused.value.evidence


def test_a_full_disk_under_the_redacted_log_is_our_error(trial: TrialPaths) -> None:
    """The raw log stays, and the error names the copy that could not be made."""
    trial.raw_log.write_text("line\n")
    trial.log.with_suffix(".part").symlink_to("/dev/full")
    with pytest.raises(RecordError) as refused:
        redact_log(trial, Redactor(b"salt", {}))
    assert "No space left" in refused.value.evidence
    assert "line\n" == trial.raw_log.read_text()


def test_a_name_too_long_for_a_file_is_an_unknown_name(tmp_path: Path) -> None:
    """Five thousand letters are no campaign, no request and no session."""
    places, name = Places(tmp_path, tmp_path / "outputs"), "x" * 5000
    for look in (
        lambda: read_campaign(places, name),
        lambda: read_request(places, name),
        lambda: find_session(places.outputs, name),
    ):
        with pytest.raises(SpecError, match="no "):
            look()
