"""Laws of the timeline: phases, spans, launches, the journal's reading."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k3lib.knowledge.journal import load_reading_steps
from k3lib.knowledge.milestones import load_engine_lines
from k3lib.logs.journal import first_missing, journal_steps
from k3lib.logs.launches import match_line, split_launches
from k3lib.logs.lines import read_lines
from k3lib.logs.timeline import Timeline, parse_launches, parse_timeline
from k3lib.logs.values import EngineValues
from k3lib.spec.vocabulary import Milestone, Phase

_CASES = Path(__file__).parents[2] / "cases" / "logs"
_LOGS = {folder.name: (folder / "engine.log").read_bytes() for folder in sorted(_CASES.iterdir())}
_ONE_LAUNCH = sorted(set(_LOGS) - {"k3_restart_loop"})
_PATTERNS = list(load_engine_lines().patterns())


def _timeline(data: bytes) -> Timeline:
    return parse_timeline(read_lines(data))


def _lines(name: str) -> list[bytes]:
    return _LOGS[name].splitlines(keepends=True) if b"\r" not in _LOGS[name] else _keep_newlines(_LOGS[name])


def _keep_newlines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.rstrip(b"\n").split(b"\n")]


@pytest.mark.parametrize("pattern", _PATTERNS, ids=lambda pattern: pattern.sample[:40])
def test_every_wording_matches_its_own_sample(pattern) -> None:  # type: ignore[no-untyped-def]
    """A pattern without a line that it matches is no knowledge."""
    assert pattern.search(pattern.sample) is not None
    assert pattern.needle in pattern.sample


def test_every_named_group_is_a_value_of_the_engine() -> None:
    """A new wording needs the file of patterns only, and cannot name a value that does not exist."""
    known = set(EngineValues.model_fields) | {"config", "prefix_cache_hit_percent"}
    assert set() == {group for pattern in _PATTERNS for group in pattern.groups} - known


@pytest.mark.parametrize("pattern", _PATTERNS, ids=lambda pattern: pattern.sample[:40])
def test_no_sample_proves_two_milestones_by_accident(pattern) -> None:  # type: ignore[no-untyped-def]
    """One line proves one milestone, except the statistics line, which tells answers, cache and load at once."""
    names = {hit.milestone for hit in match_line(pattern.sample) if hit.milestone}
    assert len(names - {Milestone.FIRST_ANSWER, Milestone.CACHE_SIGNAL, Milestone.LOAD_SEEN}) <= 1


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_cutting_a_log_never_gives_a_later_phase(data: st.DataObject) -> None:
    """The first lines of a launch stand in no later phase than the whole launch."""
    name = data.draw(st.sampled_from(_ONE_LAUNCH))
    lines = _lines(name)
    cut = data.draw(st.integers(0, len(lines)))
    assert _timeline(b"".join(lines[:cut])).phase.order <= _timeline(_LOGS[name]).phase.order


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(_LOGS)), st.sampled_from(["docker", "kubernetes", "journald", "compose", "docker-json"]))
def test_a_wrapper_changes_nothing_but_times(name: str, wrapper: str) -> None:
    """docker, Kubernetes, journald or compose around every line leave milestones, phase and values as they were."""
    plain = parse_launches(read_lines(_LOGS[name]))
    wrapped = parse_launches(read_lines(b"".join(_wrap(line, wrapper) for line in _lines(name))))
    assert [_timeless(one) for one in plain] == [_timeless(one) for one in wrapped]


def _wrap(line: bytes, wrapper: str) -> bytes:
    if wrapper == "docker-json":
        text = line.decode("utf-8", "replace")
        return json.dumps({"log": text, "stream": "stderr", "time": "2026-12-01T10:00:00.123Z"}).encode() + b"\n"
    stamp = {
        "docker": b"2026-12-01T10:00:00.123456789Z ",
        "kubernetes": b"2026-12-01T10:00:00.123456789Z stderr F ",
        "journald": b"Dec  1 10:00:00 node-1 vllm[4711]: ",
        "compose": b"vllm-1  | ",
    }
    return stamp[wrapper] + line


def _timeless(timeline: Timeline) -> object:
    whole = timeline.model_dump(exclude={"phases"})
    for hit in whole["milestones"]:
        hit.pop("time")
        # journald names the unit's process where a line names none.
        if hit["process"] is None:
            hit.pop("pid")
    return whole, [(span.phase, span.first_line, span.last_line) for span in timeline.phases]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_phases_never_overlap(data: st.DataObject) -> None:
    """Whatever the order of the lines, spans follow the order of a start and none begins before the last one ends."""
    name = data.draw(st.sampled_from(sorted(_LOGS)))
    lines = data.draw(st.permutations(_lines(name)[:60]))
    for timeline in parse_launches(read_lines(b"".join(lines))):
        orders = [span.phase.order for span in timeline.phases]
        assert orders == sorted(set(orders))
        told = [span for span in timeline.phases if span.start_s is not None and span.end_s is not None]
        assert all(a.end_s <= b.start_s for a, b in pairwise(told))  # type: ignore[operator]
        assert all(span.duration_s is None or span.duration_s >= 0 for span in timeline.phases)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=300), st.sampled_from(_LOGS["k3_python_v2"].split(b"\n"))), max_size=12))
def test_no_bytes_raise(chunks: list[bytes]) -> None:
    """Any bytes give a timeline."""
    assert Phase.CONTAINER.order <= _timeline(b"\n".join(chunks)).phase.order


def test_a_rank_that_still_loads_keeps_the_launch_in_the_weights() -> None:
    """With the V2 runner one rank's `Model loading took` does not end the phase for the others."""
    lines = _keep_newlines(_LOGS["k3_python_v2"])
    upto = next(i for i, line in enumerate(lines) if b"(Worker_TP7" in line and b"Model loading took" in line)
    assert Phase.WEIGHTS is _timeline(b"".join(lines[:upto])).phase
    assert Phase.MEMORY is _timeline(b"".join(lines[: upto + 1])).phase


def test_each_launch_of_a_restart_loop_has_its_own_timeline() -> None:
    """Three launches in one file are three timelines, and the last is the one reported."""
    launches = parse_launches(read_lines(_LOGS["k3_restart_loop"]))
    assert [(1, 6, True), (7, 12, True), (13, 17, False)] == [
        (one.first_line, one.last_line, one.shut_down) for one in launches
    ]
    assert {3} == {one.launches for one in launches}


_ENGINE = "Initializing a V1 LLM engine (v0.33.0) with config: a"


@pytest.mark.parametrize(
    ("expected", "log"),
    [
        ([1, 1, 2], "(EngineCore pid=1) ERROR 05-23 09:00:41 [c.py:1] gone\nvllm-1 exited with code 1 (restarting)\n"
         "(EngineCore pid=9) ERROR 05-23 09:01:41 [c.py:1] gone again\n"),
        ([1, 2], "(EngineCore pid=1) ERROR 05-23 09:00:41 [c.py:1] gone\n$ vllm serve /models/m --seed 1\n"),
        ([1, 1], "$ vllm serve /models/m\n(APIServer pid=1) INFO 05-23 09:01:05 [a.py:1] vLLM server version 0.33.0\n"),
        ([1, 1], "(ApiServer_0 pid=1) INFO 05-23 09:01:05 [a.py:1] vLLM server version 0.33.0\n"
         "(ApiServer_1 pid=2) INFO 05-23 09:01:05 [a.py:1] vLLM server version 0.33.0\n"),
        ([1, 1], "(EngineCore_DP0 pid=3) INFO 05-23 09:01:05 [c.py:1] " + _ENGINE + "\n"
         "(EngineCore_DP1 pid=4) INFO 05-23 09:01:05 [c.py:1] " + _ENGINE + "\n"),
        ([1, 2], "(EngineCore pid=3) INFO 05-23 09:01:05 [c.py:1] " + _ENGINE + "\n"
         "(EngineCore pid=4) INFO 05-23 09:03:05 [c.py:1] " + _ENGINE + "\n"),
    ],
    ids=["compose-restart", "second-command", "command-then-banner", "two-api-servers", "two-dp-engines", "new-engine"],
)  # fmt: skip
def test_launches_are_told_apart(expected: list[int], log: str) -> None:
    """Restarts separate launches; several processes of one launch do not."""
    assert expected == [event.launch for event in split_launches(read_lines(log))]


def test_the_boot_memory_line_is_no_error_and_the_error_tells_no_boot() -> None:
    """`Free memory on device … is less than desired` shares its opening words with the boot line and gives no value."""
    error = (
        "ValueError: Free memory on device cuda:0 (36.10/121.63 GiB) on startup is less than desired GPU memory "
        "utilization (0.85, 103.38 GiB)."
    )
    assert [] == match_line(error)


def test_the_poorest_rank_limits() -> None:
    """Of several ranks the smallest KV memory and the largest weights count, each with its line."""
    log = (
        "(Worker_TP0 pid=1) INFO 11-20 09:00:06 [m.py:1] Model loading took 10.0 GiB memory and 5.0 seconds\n"
        "(Worker_TP1 pid=2) INFO 11-20 09:00:06 [m.py:1] Model loading took 12.0 GiB memory and 4.0 seconds\n"
        "(Worker_TP0 pid=1) INFO 11-20 09:00:07 [m.py:1] Available KV cache memory: 3.5 GiB\n"
        "(Worker_TP1 pid=2) INFO 11-20 09:00:07 [m.py:1] Available KV cache memory: -0.5 GiB\n"
    )
    timeline = _timeline(log.encode())
    assert (12.0, 5.0, -0.5) == (
        timeline.values.weights_gib,
        timeline.values.weights_loaded_s,
        timeline.values.kv_available_gib,
    )
    stands_on = timeline.sources
    assert (2, 1, 4) == (stands_on["weights_gib"], stands_on["weights_loaded_s"], stands_on["kv_available_gib"])


_STEPS = load_reading_steps()


def _proven(line: bytes) -> set[Milestone | None]:
    return {hit.milestone for record in read_lines(line) for hit in match_line(record.text)}


@pytest.mark.parametrize("step", _STEPS, ids=lambda step: step.step.en)
def test_removing_a_marker_stops_the_reading_at_its_step(step) -> None:  # type: ignore[no-untyped-def]
    """Without the lines of one step a complete log is judged at exactly that step (R-24)."""
    lines = _keep_newlines(_LOGS["k3_python_v2"])
    kept = [line for line in lines if not _proven(line) & set(step.markers)]
    missing = first_missing(journal_steps(_timeline(b"".join(kept))))
    assert missing is not None
    assert step.number == missing.number


def test_a_complete_log_lacks_no_step() -> None:
    """All ten steps of a log with traffic are reached; uvicorn's lines alone carry no clock."""
    steps = journal_steps(_timeline(_LOGS["k3_python_v2"]))
    assert first_missing(steps) is None
    assert list(range(1, 11)) == [step.number for step in steps if step.line]
    assert [7, 8] == [step.number for step in steps if not step.time]


def test_a_rank_that_loaded_does_not_tick_the_weights_for_all() -> None:
    """While another rank still loads, the reading stops at the weights."""
    missing = first_missing(journal_steps(_timeline(_LOGS["k3_oom_one_rank_loading"])))
    assert missing is not None
    assert "Weights" == missing.step.en
