"""The ordered list of rules, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from k3lib.judge import request, start
from k3lib.judge.start import SessionFacts
from k3lib.judge.verdict import Verdict
from k3lib.spec.vocabulary import StageName

Rule = Callable[[SessionFacts], Verdict]

_START: list[Rule] = [
    start.judge_trials,
    start.judge_expected_failure,
    start.judge_effective_state,
    start.judge_cache_said,
    start.judge_debug_variables,
    start.judge_dead_variables,
    start.judge_leftovers,
]

RULES: dict[StageName, list[Rule]] = {
    StageName.MINIMAL_START: _START,
    StageName.SINGLE_REQUEST: [
        *_START,
        request.judge_frozen_request,
        request.judge_same_request,
        request.judge_api,
        request.judge_rendering,
        request.judge_tool_call,
        request.judge_coherence,
    ],
}
