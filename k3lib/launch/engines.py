"""The kinds of engine and what starts each: the one place where a kind becomes code."""

from __future__ import annotations

from k3lib.errors import LaunchError
from k3lib.launch.local import LocalEngine
from k3lib.spec.launch import LaunchPlan
from k3lib.spec.vocabulary import EngineKind

Engine = LocalEngine

ENGINES: dict[EngineKind, type[Engine]] = {
    EngineKind.REHEARSAL: LocalEngine,
    EngineKind.LOCAL: LocalEngine,
}


def check_plan(plan: LaunchPlan) -> None:
    """
    Refuse a plan that can't become an engine; starts nothing.

    Raises:
        LaunchError: For a reason that is ours or the machine's, in four lines.
    """
    _class_of(plan.kind).check_plan(plan)


def start_engine(plan: LaunchPlan, log_fd: int) -> Engine:
    """
    Check the plan and start its engine; use the result in a `with`, which stops it on every way out.

    Args:
        plan: What to start.
        log_fd: Descriptor that the engine appends its output to; it stays the caller's to close.

    Raises:
        LaunchError: Nothing is running.
    """
    engine_class = _class_of(plan.kind)
    engine_class.check_plan(plan)
    return engine_class.start(plan, log_fd)


def _class_of(kind: EngineKind) -> type[Engine]:
    if kind not in ENGINES:
        raise LaunchError(
            f"an engine of kind {kind} cannot be started by this version; no engine was started",
            expected=f"engine.kind one of {', '.join(ENGINES)}",
            evidence=f"engine.kind = {kind}",
            next="choose another kind",
        )
    return ENGINES[kind]
