"""What must hold for the answer to any log: never an exception, and the same answer to the same incident."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import variations
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k3lib.judge.failure import Failure, judge_failure
from k3lib.logs.failure import read_failures
from k3lib.logs.lines import parse_line, read_lines
from k3lib.logs.needles import Budget, load_needles
from k3lib.logs.scan import Scan
from k3lib.record.incident import Trouble
from k3lib.record.unpack import to_utf8
from k3lib.report.triage import render_note
from k3lib.spec.vocabulary import Oom, Route
from k3lib.workbook.triage import read_signs

_CASES = Path(__file__).parents[1] / "cases" / "triage"
_NAMES = sorted(folder.name for folder in _CASES.iterdir() if (folder / "engine.log").is_file())
_CUTS = 40
_UNCERTAIN = {Route.NONE, Route.INCONCLUSIVE}


def _log(name: str) -> bytes:
    return (_CASES / name / "engine.log").read_bytes()


def _expected(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = yaml.safe_load((_CASES / name / "expected.yaml").read_text("utf-8"))
    return expected


def _answer(log: bytes) -> Failure:
    return judge_failure([read_signs("engine.log", to_utf8([log]))])


def _place(answer: Failure) -> tuple[object, ...]:
    error = answer.first_error
    where = (error.line, error.block) if error else None
    return (
        answer.failed, answer.phase, answer.domain, answer.oom, answer.route, answer.rule, where, answer.launches,
        [(step.name, step.line) for step in answer.milestones],
    )  # fmt: skip


@pytest.mark.parametrize("trouble", Trouble)
def test_every_reason_not_to_read_a_file_is_told_in_both_languages(trouble: Trouble) -> None:
    """A person reads a sentence, with what the system said."""
    told = [render_note("a.log", trouble.value, "detail", language) for language in ("en", "fr")]
    assert told[0] != told[1]
    assert all(text.startswith("a.log (") and text.endswith("detail)") for text in told)


def test_the_corpus_is_there() -> None:
    """An emptied corpus fails instead of passing every test."""
    assert len(_NAMES) >= 50


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("variation", variations.SAME_LINES)
def test_the_way_a_log_was_written_down_changes_nothing(name: str, variation: str) -> None:
    """Stamps, prefixes, colours, line ends, encodings and zones leave the answer and its lines as they are."""
    assert _place(_answer(_log(name))) == _place(_answer(variations.SAME_LINES[variation](_log(name))))


@pytest.mark.parametrize("name", _NAMES)
def test_the_order_in_which_ranks_were_written_changes_no_conclusion(name: str) -> None:
    """Lines of one second, each process in its own order: phase, memory and route stay."""
    told = _answer(_log(name))
    for seed in range(4):
        answer = _answer(variations.shuffled(_log(name), seed))
        assert (told.phase, told.oom, told.route) == (answer.phase, answer.oom, answer.route), f"seed {seed}"


@pytest.mark.parametrize("name", _NAMES)
def test_a_cut_log_never_gives_another_certain_answer(name: str) -> None:
    """As the log stood at any moment, the answer was open, or it was the one that the whole log gives."""
    log, expected = _log(name), _expected(name)
    whole = _answer(log)
    if whole.route not in {*map(Route, expected["route"])}:
        pytest.skip("the whole log is not answered as labelled; make accuracy names it")
    dice = random.Random(name)
    ends = [i + 1 for i, byte in enumerate(log) if byte == 10]
    for at in sorted({*ends, *(dice.randrange(len(log) + 1) for _ in range(_CUTS))}):
        answer = _answer(variations.cut_end(log, at))
        if answer.route in _UNCERTAIN:
            continue
        # What speaks of memory may stand in the part that is missing.
        memory = {*expected["oom"], Oom.NONE.value}
        seen = f"cut at byte {at}, line {log[:at].count(10) + 1}: {answer.rule}"
        assert answer.route in expected["route"], seen
        assert answer.phase in expected["phase"], seen
        assert answer.oom in memory, seen


@pytest.mark.parametrize("name", _NAMES)
def test_the_prefilter_changes_no_answer(name: str) -> None:
    """What the scan leaves out of a long log would not have changed the answer."""
    log = _log(name)
    everything = judge_failure([read_failures("engine.log", read_lines(log))])
    scanned = Scan(load_needles(), Budget(whole_bytes=0)).read([log])
    lines = (record for line in scanned for record in parse_line(line.number, line.data, clipped=line.clipped))
    assert _place(everything) == _place(judge_failure([read_failures("engine.log", lines)]))


@pytest.mark.parametrize("name", _NAMES)
def test_a_failure_in_the_middle_of_a_long_log_is_found_on_its_line(name: str) -> None:
    """Between half a megabyte of other lines before and after it, the answer is the same, further down."""
    noise = b"".join(b"heartbeat %d %s\n" % (i, b"." * 1000) for i in range(500))
    log = _log(name)
    alone, hidden = _answer(log), _answer(noise + log + noise)
    assert (alone.failed, alone.phase, alone.oom, alone.route, alone.rule) == (
        hidden.failed, hidden.phase, hidden.oom, hidden.route, hidden.rule,
    )  # fmt: skip
    lines = [answer.first_error.line if answer.first_error else None for answer in (alone, hidden)]
    assert lines[1] == (lines[0] + 500 if lines[0] else None)


@pytest.mark.parametrize("name", _NAMES)
def test_damage_raises_nothing(name: str) -> None:
    """Bytes flipped, lines doubled, bars glued on, a beginning that is missing: there is an answer to each."""
    log = _log(name)
    for seed in range(3):
        assert _answer(variations.flipped(log, seed)).rule
        assert _answer(variations.doubled(log, seed)).rule
    assert _answer(variations.progress_bars(log)).rule
    for start in range(0, len(log), max(1, len(log) // 10)):
        assert _answer(log[start:]).rule


@given(st.binary(max_size=2000))
@settings(max_examples=150, deadline=None)
def test_any_bytes_have_an_answer(log: bytes) -> None:
    """Nothing raises, and what is no log is not called a failure of the engine with certainty."""
    assert _answer(log).route in _UNCERTAIN


_WORDS = st.sampled_from(
    [
        "(Worker_TP1 pid=9) ", "(EngineCore pid=3) ", "(APIServer pid=1) ", "ERROR 07-15 10:00:21 [a.py:1] ", "INFO ",
        "Traceback (most recent call last):", '  File "/a.py", line 3, in load_model', "CUDA out of memory. Tried ",
        "RuntimeError: ", "NCCL WARN ", "NVRM: Xid (PCI:0000:b7:00): 79", "init engine (profile) took 3 s",
        "vLLM server version 0.33.0", "a-1 exited with code 1", "Killed", "\r", "\n", "\n", "\x1b[31m",
        '{"log":"', '\\n"}',
        "100%|##| 4/4 [00:01<00:00]", "2026-07-15T10:00:21.5Z stderr F ", "\0", "…", " ",
    ]
)  # fmt: skip


@given(st.lists(_WORDS, max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_words_of_a_log_in_any_order_have_an_answer(words: list[str]) -> None:
    """Pieces of real lines, put together without sense, raise nothing; a first error stands on a line that exists."""
    log = "".join(words).encode()
    error = _answer(log).first_error
    if error:
        assert 1 <= error.block[0] <= error.line <= error.block[1] <= log.count(b"\n") + 1
