"""The text of triage: the same answer in two languages, with line numbers, reasons, the next step and what not."""

from __future__ import annotations

import re

import pytest

from k3lib.judge.answer import Failure
from k3lib.judge.failure import judge_failure
from k3lib.logs.failure import read_failures
from k3lib.logs.lines import read_lines
from k3lib.report.triage import Language, render_json, render_text

LOG = """\
(EngineCore pid=7) INFO 11-05 09:00:20 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: m='m'
(Worker_TP0 pid=9) INFO 11-05 09:05:10 [m.py:1] Loading model from scratch...
(Worker_TP2 pid=902) ERROR 11-05 09:10:10 [multiproc_executor.py:944] torch.OutOfMemoryError: CUDA out of memory.
(EngineCore pid=7) ERROR 11-05 09:10:13 [core.py:1584] EngineCore failed to start.
"""
SCHEMA = [
    "file", "failed", "phase", "domain", "first_error", "oom", "route", "rule", "because", "evidence", "milestones",
    "launches",
]  # fmt: skip


def failure() -> Failure:
    """Weights that do not fit."""
    return judge_failure([read_failures("engine.log", read_lines(LOG))])


def test_json_holds_exactly_the_fields_of_the_schema() -> None:
    """One object per argument, with nothing added."""
    told = render_json("engine.log", failure())
    assert SCHEMA == list(told)
    assert {"file", "line", "text", "block"} == set(told["first_error"])
    assert ["engine-initializing", "weights-loading"] == [step["name"] for step in told["milestones"]]


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", ["First error", "Why:", "Next:", "Not:"]),
        ("fr", ["Première erreur", "Pourquoi :", "Ensuite :", "À éviter :"]),
    ],
)
def test_the_text_has_a_timeline_a_line_reasons_a_step_and_a_warning(language: Language, words: list[str]) -> None:
    """In either language, in this order."""
    block = [(3, LOG.splitlines()[2])]
    text = render_text("engine.log", failure(), block, [], language)
    places = [text.index(word) for word in words]
    assert sorted(places) == places
    assert re.search(r"^> 3  .*OutOfMemoryError", text, re.M)
    assert "weights-loading" in text


def test_weights_that_do_not_fit_are_not_answered_with_less_concurrency() -> None:
    """Neither the step nor its French names a limit of requests (R-02)."""
    for language, step in (("en", "Next: "), ("fr", "Ensuite : ")):
        text = render_text("engine.log", failure(), [], [], "fr" if language == "fr" else "en")
        said = text[text.index(step) :].split("\n")[0]
        assert re.search(r"concurren|max_num_seqs|max_model_len|longueur|length", said, re.I) is None


def test_control_characters_of_a_log_do_not_reach_the_terminal() -> None:
    """What a log holds is shown, not executed."""
    text = render_text("engine.log", failure(), [(3, "\x1b]0;owned\x07 CUDA out of memory \x1b[2J")], [])
    assert "\x1b" not in text
    assert "\x07" not in text
