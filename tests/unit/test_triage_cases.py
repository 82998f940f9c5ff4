"""Every case of tests/cases/triage is answered as its label says; a label lists what is acceptable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from k3lib.workbook.triage import Triage, triage

CASES = Path(__file__).parents[1] / "cases" / "triage"
NAMES = sorted(folder.name for folder in CASES.iterdir()) if CASES.is_dir() else []


def evidence(name: str) -> Path:
    """The file or folder that a case hands over."""
    folder = CASES / name / "evidence"
    return folder if folder.is_dir() else CASES / name / "engine.log"


def expected(name: str) -> dict[str, Any]:
    """The label of a case."""
    label: dict[str, Any] = yaml.safe_load((CASES / name / "expected.yaml").read_text("utf-8"))
    return label


def answer(name: str) -> Triage:
    """What triage says of a case."""
    return triage(str(evidence(name)))


def test_the_corpus_holds_reports_and_written_incidents() -> None:
    """An emptied corpus fails instead of passing every test; every case names where it comes from."""
    sources = [yaml.safe_load((CASES / name / "source.yaml").read_text("utf-8")) for name in NAMES]
    assert {"rewritten", "written"} == {source["kind"] for source in sources}
    assert 62 == sum(source["kind"] == "rewritten" for source in sources)
    assert len(NAMES) >= 110
    assert all(source["source"] for source in sources)


@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_answered_as_its_label_says(name: str) -> None:
    """Failed or not, phase, memory, route, and the line of the first error, as `grep -n` counts."""
    label, failure = expected(name), answer(name).failure
    first = failure.first_error
    assert failure.failed in label["failed"]
    assert (failure.phase and failure.phase.value) in label["phase"]
    assert failure.oom.value in label["oom"]
    assert failure.route.value in label["route"]
    if label["first_error_line"] is not None:
        assert (first.line if first else None) in label["first_error_line"]
    if "first_error_file" in label:
        assert first is not None
        assert label["first_error_file"] == first.file


@pytest.mark.parametrize("name", NAMES)
def test_what_is_quoted_stands_where_it_is_said_to_stand(name: str) -> None:
    """Every line of evidence is found in its file under its number."""
    place = evidence(name)
    for quoted in answer(name).as_dict()["evidence"]:
        path = place / quoted["file"] if place.is_dir() else place
        line = path.read_bytes().split(b"\n")[quoted["line"] - 1].decode("utf-8", "replace")
        words = [word for word in quoted["text"].split()[:4] if word.isascii() and "=" not in word]
        assert "times" in words or all(word in line for word in words), quoted
