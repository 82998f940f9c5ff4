"""The environment of an engine: little from ours, what the plan declares, and the marks of the trial."""

from __future__ import annotations

from collections.abc import Mapping

from k3lib.launch.leftovers import MARK
from k3lib.spec.launch import LaunchPlan


def compose_environment(plan: LaunchPlan, ours: Mapping[str, str], *, scratch: str | None = None) -> dict[str, str]:
    """
    Every variable the engine will see.

    Args:
        plan: Names what is inherited and declares the rest.
        ours: Our own environment.
        scratch: The trial's own temporary directory. It becomes TMPDIR unless the plan declares one: vLLM leaves
            its sockets there when it is killed, and they must go with the trial.

    Returns:
        Inherited variables, then the declared ones, then the mark; a later one wins.
    """
    inherited = {name: ours[name] for name in plan.inherit if name in ours}
    place = {"TMPDIR": scratch} if scratch else {}
    return inherited | place | plan.env | {MARK: plan.token}
