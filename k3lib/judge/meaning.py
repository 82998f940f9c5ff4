"""What a first error means: its phase, root or secondary, whose problem, what to do about it."""

from __future__ import annotations

import re

from k3lib.judge.first_error import Launch, meaning
from k3lib.knowledge.signatures import Origin
from k3lib.logs.failure import Sign
from k3lib.logs.lines import Role
from k3lib.spec.vocabulary import Domain, Oom, Phase, Route

_OWN_GIB = 3.0  # what an idle GPU's driver, reserve and own context can take
_MUCH_FREE = 10.0
_SIZES = {"KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3, "TiB": 1024.0**4}
_ENVIRONMENT = re.compile(
    r"(?:^|\.)(?:Import|ModuleNotFound|FileNotFound|Permission|NotADirectory|Connection\w*|Broken\w*|OS|IO|BlockingIO|SSL\w*|HTTP)Error$"
)
_DEFECT = re.compile(
    r"(?:^|\.)(?:Assertion|Attribute|Type|Index|Key|NotImplemented|UnboundLocal|Name|ZeroDivision)Error$"
)
_CLIENT = re.compile(r"(?:^|\.)(?:Value|Validation|VLLMValidation|BadRequest|JSONDecode|RequestValidation)Error$")
_ENGINE_ROLES = (Role.WORKER, Role.ENGINE)
_TIMED_OUT = re.compile(r"Timeout(?:Error|Expired)?$")


def judge_phase(sign: Sign | None, launch: Launch) -> Phase:
    """
    The phase of an error: what its text proves, else its frames, else how far the start had got (R-01).

    Args:
        sign: The error, or None for the end of the log.
        launch: The launch it stands in, or explains.
    """
    known = meaning(sign)
    if known and known.phase:
        return known.phase
    phase = _phase_reached(sign, launch)
    if sign and known and known.unplaced and not (_phase_is_shown(sign, launch) or launch.last_step()):
        phase = known.unplaced
    if known and known.at_least and phase.order < known.at_least.order:
        phase = known.at_least
    if launch.died_serving:
        phase = Phase.SERVING
    # An orchestrator can stop at any time what has come up; the engine's own words of that kind belong to a start.
    stopped_later = sign is not None and sign.ready and sign.origin is Origin.OUTSIDE
    most = known.at_most if known and not stopped_later else None
    if launch.failed_to_start and phase is Phase.SERVING and not (sign and sign.ready):
        most = most or Phase.MEMORY
    return most if most and phase.order > most.order else phase


def _phase_reached(sign: Sign | None, launch: Launch) -> Phase:
    reached = launch.reading.timeline.phase
    if sign is None:
        # The text is missing; the traceback that repeats it stood in the same step.
        frames = next((s.frames for s in launch.wrappers if s.frames and s.role in _ENGINE_ROLES), None)
        return frames or _unplaced(launch) or _at_least_init(reached, launch.wrappers)
    # What ended it from outside ended it where it stood, wherever in the file that is told.
    if sign.file == launch.file and sign.origin is not Origin.OUTSIDE:
        reached = sign.reached
    if sign.ready and not launch.failed_to_start:
        return Phase.SERVING
    return sign.frames or _at_least_init(reached, [sign])


def _unplaced(launch: Launch) -> Phase | None:
    """What a repeated error assumes about its phase where nothing else shows one."""
    if launch.last_step() or launch.failed_to_start:
        return None
    return next((found.unplaced for s in launch.wrappers if (found := meaning(s)) and found.unplaced), None)


def _at_least_init(reached: Phase, signs: list[Sign]) -> Phase:
    """Where an engine process or a worker speaks, configuration is over."""
    spoke = any(sign.role in _ENGINE_ROLES for sign in signs)
    return Phase.INIT if spoke and reached.order < Phase.INIT.order else reached


def judge_oom(sign: Sign, launch: Launch, launches: list[Launch]) -> Oom:
    """
    Whether an out-of-memory message is the root, a consequence, or of another memory (R-06).

    Args:
        sign: The first error.
        launch: Its launch.
        launches: All launches, for messages that come after it.
    """
    known = meaning(sign)
    own = known.oom if known else Oom.NONE
    if own is Oom.SECONDARY:
        return Oom.SECONDARY if held_by_others(sign) else Oom.NONE
    if own is Oom.ROOT and (_had_room(sign) or _others_gib(sign) > _OWN_GIB):
        return Oom.SECONDARY
    if own is not Oom.NONE:
        return own
    if sign.signature == "killed-by-signal" and judge_phase(sign, launch) is Phase.WEIGHTS:
        return Oom.HOST_RAM
    later = [s for other in launches for s in other.causes if s is not sign]
    kinds = {found.oom for s in later if (found := meaning(s))}
    return Oom.SECONDARY if kinds & {Oom.ROOT, Oom.SECONDARY} else Oom.NONE


def held_by_others(sign: Sign) -> bool:
    """
    Whether at the start more of the GPU was taken than its driver and an own context need.

    The shortfall of an otherwise empty GPU is a setting that asks for too much.
    """
    try:
        free, total = float(sign.values["free_gib"] or ""), float(sign.values["total_gib"] or "")
    except (KeyError, ValueError):
        return True
    return total - free > _OWN_GIB


def _had_room(sign: Sign) -> bool:
    """The allocator claims that far more was free than it asked for: its context was broken before."""
    tried, free = _size(sign.values.get("tried")), _size(sign.values.get("free"))
    return tried is not None and free is not None and free > _MUCH_FREE * tried


def _others_gib(sign: Sign) -> float:
    """What processes beside the one that speaks hold of this GPU, as the allocator lists them."""
    held = re.findall(r"has ([\d.]+ [KMGT]iB)", sign.values.get("others") or "")
    return sum(_size(text) or 0.0 for text in held) / _SIZES["GiB"]


def _size(text: str | None) -> float | None:
    if not text:
        return None
    number, _, unit = text.partition(" ")
    try:
        return float(number) * _SIZES[unit]
    except (KeyError, ValueError):
        return None


def judge_route(sign: Sign, launch: Launch, phase: Phase, oom: Oom) -> Route:
    """
    What a first error asks for next.

    Args:
        sign: The first error.
        launch: Its launch.
        phase: Where it stands.
        oom: What its memory message is.
    """
    known = meaning(sign)
    if known is None:
        return _route_unknown(sign, phase, launch)
    if known.id == "gpu-out-of-memory" and _others_gib(sign) > _OWN_GIB:
        return Route.FIX_ENVIRONMENT
    if known.id == "gpu-out-of-memory":
        return _route_gpu_memory(phase, oom) if _phase_is_shown(sign, launch) else Route.INCONCLUSIVE
    if known.id == "gpu-memory-held":
        # After an engine that died while serving, the memory may be that engine's.
        died = any(s.signature == "engine-died-serving" and s.line < sign.line for s in launch.wrappers)
        return Route.INCONCLUSIVE if died else Route.TUNE if oom is Oom.NONE else Route.FIX_ENVIRONMENT
    if known.id == "killed-by-signal" and oom is Oom.HOST_RAM:
        return Route.FIX_ENVIRONMENT
    if known.id == "gateway-timeout":
        # Only a queue that the engine itself reports makes the gateway's limit a question of capacity.
        return Route.TUNE if launch.reading.timeline.values.waiting_requests_max else Route.INCONCLUSIVE
    if known.id == "peer-died" and phase is Phase.INIT:
        return Route.FIX_ENVIRONMENT
    return known.route or Route.INCONCLUSIVE


def _phase_is_shown(sign: Sign, launch: Launch) -> bool:
    """Something tells in which phase it is: a frame, a milestone, or how the engine announced its end."""
    return bool(sign.frames or sign.reached.order >= Phase.INIT.order or sign.ready or launch.died_serving)


def _route_gpu_memory(phase: Phase, oom: Oom) -> Route:
    if oom is Oom.SECONDARY:
        return Route.INCONCLUSIVE
    if phase in (Phase.CONTAINER, Phase.CONFIG, Phase.INIT):
        return Route.FIX_ENVIRONMENT
    return Route.EXTEND if phase is Phase.WEIGHTS else Route.TUNE


def _route_unknown(sign: Sign, phase: Phase, launch: Launch) -> Route:
    name = sign.exception
    if name is None or _TIMED_OUT.search(name):
        return Route.INCONCLUSIVE
    if _ENVIRONMENT.search(name):
        return Route.FIX_ENVIRONMENT
    if phase is Phase.SERVING and _CLIENT.search(name) and _before_requests(sign, launch):
        return Route.FIX_COMMAND
    if phase is Phase.SERVING:
        return Route.REPORT_UPSTREAM if not (_CLIENT.search(name) and _of_front_end(sign)) else Route.FIX_CLIENT
    if phase in (Phase.WEIGHTS, Phase.MEMORY) or _DEFECT.search(name):
        return Route.REPORT_UPSTREAM
    return Route.FIX_ENVIRONMENT if phase is Phase.INIT else Route.FIX_COMMAND


def _before_requests(sign: Sign, launch: Launch) -> bool:
    """The engine had come up and its API had not: what is refused there stands in the command."""
    came_up = sign.file == launch.file and launch.last_step(before=sign.line) is not None
    return came_up and not (sign.ready or launch.died_serving or sign.frames is Phase.SERVING)


def _of_front_end(sign: Sign) -> bool:
    return sign.role is None or sign.role.value == "front_end"


_BY_PHASE = {
    Phase.CONTAINER: Domain.HOST,
    Phase.CONFIG: Domain.APPLICATION,
    Phase.INIT: Domain.NETWORK,
    Phase.WEIGHTS: Domain.WEIGHTS,
    Phase.MEMORY: Domain.ENGINE,
    Phase.SERVING: Domain.ENGINE,
}


def judge_domain(sign: Sign, phase: Phase, oom: Oom) -> Domain:
    """Which specialist a first error goes to (R-68)."""
    known = meaning(sign)
    if known and known.id == "killed-by-signal" and oom is Oom.HOST_RAM:
        return Domain.HOST
    return known.domain if known and known.domain else _BY_PHASE[phase]


def name_rule(sign: Sign) -> str:
    """What decided: the signature's name, or what the sign is without one."""
    return sign.signature or ("unknown-exception" if sign.exception else "error-line")


GPU_MEMORY_ADVICE = {
    Phase.WEIGHTS: "gpu-memory-weights",
    Phase.MEMORY: "gpu-memory-profiling",
    Phase.SERVING: "gpu-memory-serving",
}
UNKNOWN_ADVICE = {
    Route.FIX_COMMAND: "command",
    Route.FIX_ENVIRONMENT: "environment",
    Route.REPORT_UPSTREAM: "unknown-defect",
    Route.FIX_CLIENT: "client",
    Route.INCONCLUSIVE: "find-first-rank",
}


def judge_advice(sign: Sign, phase: Phase, oom: Oom, route: Route) -> str | None:
    """
    The family of the next step, or None.

    A lack of memory is answered by its phase: before requests exist, no limit of requests is ever the remedy (R-02).
    """
    known = meaning(sign)
    if known is None:
        return UNKNOWN_ADVICE.get(route)
    if known.id == "gpu-out-of-memory":
        if route is Route.FIX_ENVIRONMENT:
            return "memory-held"
        if oom is Oom.SECONDARY:
            return "find-first-rank"
        return known.advice if route is Route.INCONCLUSIVE else GPU_MEMORY_ADVICE.get(phase, known.advice)
    if known.id == "gpu-memory-held" and route is Route.TUNE:
        return "utilization"
    if oom is Oom.HOST_RAM:
        return "host-memory"
    return known.advice
