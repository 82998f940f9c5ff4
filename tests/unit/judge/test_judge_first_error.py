"""The session rule about the first error: it names line and route of the first failed trial, or says why not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from k3lib.judge.answer import Failure
from k3lib.judge.failure import judge_failure
from k3lib.judge.start import SessionFacts, judge_first_error
from k3lib.judge.trial import TrialRecord, judge_trial
from k3lib.logs.failure import read_failures
from k3lib.logs.lines import read_lines
from k3lib.logs.timeline import parse_timeline
from k3lib.report.sentences import render_verdict
from k3lib.spec.results import Exit, LaunchResult
from k3lib.spec.vocabulary import Ending, EngineKind, Outcome, Phase

READY_THEN_REFUSED = """\
(EngineCore pid=7) INFO 11-05 09:09:50 [core.py:396] init engine (profile, create kv cache, warmup model) took 5.84 s
(EngineCore pid=7) ERROR 11-05 09:09:51 [core.py:1510] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-05 09:09:51 [core.py:1510] ValueError: retention_interval (100) must be a multiple of 256
"""
SILENT = "(EngineCore pid=7) INFO 11-05 09:09:50 [w.py:1] Loading model from scratch...\n"


def trial(log: str) -> TrialRecord:
    """A trial whose engine exited by itself, with its log read."""
    launch = LaunchResult(
        kind=EngineKind.LOCAL, argv=[], env={}, command="", base_url=None, started_at="2026-11-05T09:00:00+00:00",
        ending=Ending.DIED, exit=Exit(code=1, signal=None, asked=False),
    )  # fmt: skip
    record = TrialRecord(number=1, arm="base", launch=launch, timeline=parse_timeline(read_lines(log)))
    return judge_trial(record.model_copy(update={"diagnosis": diagnose(log)}), [])


def diagnose(log: str) -> Failure:
    """What triage says."""
    return judge_failure([read_failures("trial-1/engine.log", read_lines(log))])


def facts(*trials: Any) -> SessionFacts:
    """A session with these trials."""
    return cast(SessionFacts, SimpleNamespace(trials=list(trials)))


def test_the_first_error_of_a_failed_trial_is_named_with_line_and_route() -> None:
    """The verdict's evidence is the line itself, and its step that of triage."""
    verdict = judge_first_error(facts(trial(READY_THEN_REFUSED)))
    assert (Outcome.WARN, "trial-1/engine.log", 3) == (
        verdict.outcome,
        verdict.evidence[0].file,
        verdict.evidence[0].line,
    )
    sentence, step = render_verdict(verdict, "fr")
    assert "ligne 3" in sentence
    assert "fix-command" in sentence
    assert step.startswith("Corriger la commande")


def test_a_start_that_fails_after_its_last_milestone_failed_in_the_memory_phase() -> None:
    """`init engine … took` followed by `EngineCore failed to start.` is a start-up failure, not traffic."""
    assert Phase.MEMORY is trial(READY_THEN_REFUSED).failed_phase


def test_a_log_without_an_error_is_said_to_name_none() -> None:
    """SKIP, with what to collect; and nothing to say where no trial failed."""
    assert (Outcome.SKIP, "untold") == ((v := judge_first_error(facts(trial(SILENT)))).outcome, v.case)
    assert Outcome.NOT_APPLICABLE is judge_first_error(facts()).outcome
