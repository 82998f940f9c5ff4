"""`k3 diff` reads what people have in their hands, and refuses what only looks like it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from k3lib.errors import InputError, SpecError
from k3lib.probe.collection import read_collector
from k3lib.record.parameters import Places
from k3lib.workbook.differences import compare_named

ROOT = Path(__file__).parents[3]
PAIRS = ROOT / "tests" / "cases" / "fingerprints"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """The workbook's folders, without a session."""
    return Places(ROOT, tmp_path / "outputs")


@pytest.mark.parametrize(
    ("case", "code"), [("01_equal", 0), ("09_missing_gpu", 3), ("19_container_not_looked_at", 125)]
)
def test_the_exit_code_says_what_was_found(places: Places, case: str, code: int) -> None:
    """0 equal, 3 drift, 125 where one side knows less than the other."""
    found = compare_named(places, str(PAIRS / case / "before.json"), str(PAIRS / case / "after.json"))
    assert code == found.exit_code
    assert (code == 3) == found.as_dict()["drift"]


def test_the_collectors_own_json_is_taken(places: Places, tmp_path: Path) -> None:
    """Two runs of the stand-alone collector on one machine are equal, and it is the same machine."""
    files = []
    for name in ("a", "b"):
        ran = subprocess.run([sys.executable, "-"], input=read_collector().encode(), capture_output=True, timeout=120)
        (tmp_path / name).write_bytes(ran.stdout)
        files.append(str(tmp_path / name))
    found = compare_named(places, *files)
    assert [] == found.report.differences
    assert found.report.same_place


@pytest.mark.parametrize("content", ["{}", "[]", "not JSON", json.dumps({"factor": {"a": 1}}), json.dumps({"x": {}})])
def test_any_other_json_is_refused(places: Places, tmp_path: Path, content: str) -> None:
    """An empty fingerprint would equal another empty one: fail closed."""
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match="neither a fingerprint nor a snapshot"):
        compare_named(places, str(tmp_path / "x.json"), str(tmp_path / "x.json"))


def test_a_word_that_names_nothing_is_refused(places: Places) -> None:
    """Neither a file nor a session."""
    with pytest.raises(SpecError, match="no session"):
        compare_named(places, "nowhere", "nowhere")
