"""The ordered list of rules, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from k3lib.judge import compatibility, compatibility_acceptance, control, place, request, scene, start
from k3lib.judge.start import SessionFacts
from k3lib.judge.verdict import Verdict
from k3lib.spec.vocabulary import StageName

Rule = Callable[[SessionFacts], Verdict]

_PLACE: list[Rule] = [
    place.judge_since_stable,
    place.judge_conditions,
    place.judge_debug_leftover,
    place.judge_during,
]

_START: list[Rule] = [
    start.judge_trials,
    start.judge_first_error,
    start.judge_expected_failure,
    start.judge_effective_state,
    start.judge_cache_said,
    start.judge_debug_variables,
    start.judge_dead_variables,
    start.judge_leftovers,
    *_PLACE,
]

_COMPATIBILITY: list[Rule] = [
    compatibility.of_session(judge)
    for judge in (
        compatibility.judge_path,
        *compatibility.CONSTRAINTS,
        control.judge_control,
        control.judge_rebuild,
        compatibility_acceptance.judge_health,
        compatibility_acceptance.judge_acceptance,
        compatibility_acceptance.judge_use,
    )
]

RULES: dict[StageName, list[Rule]] = {
    StageName.SCENE: [
        scene.judge_items,
        scene.judge_driver,
        scene.judge_container_view,
        scene.judge_sources,
        scene.judge_attribution,
        scene.judge_images,
        scene.judge_sharing,
        scene.judge_variables,
        scene.judge_restarts,
        scene.judge_return_point,
        place.judge_since_stable,
        place.judge_conditions,
        place.judge_debug_leftover,
    ],
    StageName.COMPATIBILITY: _COMPATIBILITY,
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
