"""Every recorded or hand-written log of tests/cases/logs gives the timeline that stands beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from k3lib.logs.lines import read_lines
from k3lib.logs.timeline import Timeline, parse_timeline
from k3lib.spec.vocabulary import Milestone, Phase

_CASES = Path(__file__).parents[2] / "cases" / "logs"
_NAMES = sorted(folder.name for folder in _CASES.iterdir()) if _CASES.is_dir() else []

# Several wordings each, told apart by the tests of the patterns.
_UNPINNED = {Milestone.WEIGHTS_PROGRESS, Milestone.PROFILING_STARTED, Milestone.BLOCK_SIZE, Milestone.GRAPHS_CAPTURING}


def _read(name: str) -> tuple[Timeline, dict[str, Any]]:
    expected = yaml.safe_load((_CASES / name / "expected.yaml").read_text("utf-8"))
    with (_CASES / name / "engine.log").open("rb") as log:
        return parse_timeline(read_lines(log)), expected


def test_the_corpus_holds_recorded_and_written_logs() -> None:
    """An emptied corpus fails instead of passing every test."""
    kinds = {yaml.safe_load((_CASES / name / "source.yaml").read_text("utf-8"))["kind"] for name in _NAMES}
    assert kinds == {"recorded", "written"}
    assert len(_NAMES) >= 24


@pytest.mark.parametrize("name", _NAMES)
def test_milestones_stand_on_the_lines_where_grep_finds_them(name: str) -> None:
    """The first line of each milestone is the line that `grep -n` finds for its wording."""
    timeline, expected = _read(name)
    found: dict[str, int] = {}
    for hit in timeline.milestones:
        found.setdefault(hit.name.value, hit.line)
    assert expected["milestones"] == {name: line for name, line in found.items() if name not in _UNPINNED}


@pytest.mark.parametrize("name", _NAMES)
def test_the_phase_the_readiness_and_the_launches_are_right(name: str) -> None:
    """A failure at the end of the log would stand in the expected phase."""
    timeline, expected = _read(name)
    assert (Phase(expected["phase"]), expected["ready"], expected["launches"]) == (
        timeline.phase,
        timeline.ready,
        timeline.launches,
    )


@pytest.mark.parametrize("name", _NAMES)
def test_each_phase_lasts_as_long_as_the_stamps_say(name: str) -> None:
    """Durations come from the log's own clock; what it cannot tell is None with a reason."""
    timeline, expected = _read(name)
    spans = {span.phase.value: span for span in timeline.phases}
    assert expected["durations_s"] == {phase: spans[phase].duration_s for phase in expected["durations_s"]}
    assert all(span.reason for span in timeline.phases if span.duration_s is None)


@pytest.mark.parametrize("name", _NAMES)
def test_values_are_what_the_engine_said_of_itself(name: str) -> None:
    """Values are typed and each stands on a line of its launch; what was not said is None."""
    timeline, expected = _read(name)
    told = timeline.values.model_dump()
    assert expected["values"] == {key: told[key] for key in expected["values"]}
    assert all(timeline.first_line <= line <= timeline.last_line for line in timeline.sources.values())
    assert [] == [key for key, value in told.items() if value not in (None, []) and key not in timeline.sources]


@pytest.mark.parametrize("name", _NAMES)
def test_a_timeline_survives_json(name: str) -> None:
    """Written and read back, a timeline is the same."""
    timeline, _ = _read(name)
    assert timeline == Timeline.model_validate_json(timeline.model_dump_json())
