"""A rented node: what was delivered against what was ordered, whether it is healthy, and what it may be used for."""

from __future__ import annotations

from typing import Any, Literal

from k3lib.judge.compatibility import judge_path
from k3lib.judge.compatibility_constraint import Finding, constraint, fails, not_applicable, passes, skips, warns
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.compatibility_host import find_mount
from k3lib.knowledge.recipe import find_gpu
from k3lib.spec.model import Fact
from k3lib.spec.order import NodeOrder
from k3lib.spec.vocabulary import Outcome, Severity
from k3lib.units import GIB

Use = Literal["base-of-a-series", "labelled-proof-of-concept", "not-for-k3", "nothing-yet"]

_EXACT = ("gpu", "machine", "link")
_TOLERANCE = 0.01
"""Figures of an order are round; a delivery may be smaller by this share."""


class Delivery(Fact):
    """
    One line of an order and what came.

    Args:
        name: Field of the order.
        ordered, delivered: Values; delivered is None where it is not known.
        kept: True, False, or None where it cannot be told.
    """

    name: str
    ordered: Any
    delivered: Any = None
    kept: bool | None = None


def compare_delivery(facts: CompatibilityFacts) -> list[Delivery]:
    """
    Every line of the order beside what was seen.

    Args:
        facts: With `ordered` filled; an empty order gives no lines.
    """
    order = NodeOrder.model_validate(facts.ordered, strict=False)
    seen = _delivered(facts)
    lines = []
    for name, ordered in order.lines().items():
        came = seen[name]
        wanted = ordered.value if name == "link" else ordered  # type: ignore[attr-defined]
        kept = None if came is None else came == wanted if name in _EXACT else _at_least(came, wanted)
        lines.append(Delivery(name=name, ordered=wanted, delivered=came, kept=kept))
    return lines


def _delivered(facts: CompatibilityFacts) -> dict[str, Any]:
    """What was seen, in the words of an order; the least over all hosts."""
    gpus = facts.gpus
    drivers = [driver for host in facts.machines if (driver := host.driver("nvidia"))]
    branches = [int(version.split(".")[0]) for d in drivers if (version := d.loaded or d.asked)]
    mounts = [find_mount(host, facts.weights_folder) for host in facts.machines] if facts.weights_folder else []
    free = [mount.free_bytes if mount else None for mount in mounts]
    machines = {host.host.machine for host in facts.machines}
    return {
        "gpu": facts.gpu_kind
        or " + ".join(sorted({find_gpu(g.name or "") or g.name or "?" for g in gpus or []}))
        or None,
        "gpus": None if gpus is None else len(gpus),
        "hosts": len(facts.machines) or None,
        "gpu_memory_gib": _least([g.memory_total_bytes for g in gpus or []], GIB),
        "driver_branch": min(branches, default=None) if len(branches) == len(facts.machines) else None,
        "cuda": min((d.cuda for d in drivers if d.cuda), key=_numbers, default=None),
        "machine": " + ".join(sorted(m or "?" for m in machines)) or None,
        "memory_gib": _least([host.host.memory_bytes for host in facts.machines], GIB),
        "free_disk_tb": _least(free, 10**12),
        "link": facts.link.value if facts.link else None,
    }


def _least(values: list[int | None], unit: int) -> float | None:
    known = [value for value in values if value is not None]
    return round(min(known) / unit, 2) if known and len(known) == len(values) else None


def _at_least(came: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return _numbers(came) >= _numbers(wanted)
    if isinstance(wanted, float):
        return bool(came >= wanted * (1 - _TOLERANCE))
    return bool(came >= wanted)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


@constraint("acceptance", "R-57", any_model=True)
def judge_acceptance(facts: CompatibilityFacts) -> Finding:
    """Is what was delivered what was ordered?"""
    lines = compare_delivery(facts)
    if not lines:
        return not_applicable("nothing-ordered")
    told = {
        "n": len(lines),
        "short": [line.model_dump(mode="json") for line in lines if line.kept is False],
        "unknown": [line.name for line in lines if line.kept is None],
    }
    if told["short"]:
        return fails("short", **told)
    if told["unknown"]:
        return Finding(Outcome.SKIP, "unknown", told)
    return passes("kept", **told)


@constraint("health", "R-15", "R-63", real=True, pretended=True, any_model=True)
def judge_health(facts: CompatibilityFacts) -> Finding:
    """Is anything wrong with the machines by themselves: a lost GPU, memory errors, half a driver, a neighbour?"""
    if not facts.machines:
        return skips("host", why=facts.reasons.get("hosts"))
    worst = {c.severity for c in facts.machine_conditions}
    kinds = sorted({f"{c.kind} ({c.view})" if c.view else c.kind for c in facts.machine_conditions})
    if Severity.BREAK in worst:
        return fails("broken", kinds=kinds)
    if Severity.WARN in worst:
        return warns("watch", kinds=kinds)
    return passes("nothing", kinds=kinds)


@constraint("use", "R-57", "C17", any_model=True)
def judge_use(facts: CompatibilityFacts) -> Finding:
    """What may this node be used for?"""
    if not facts.ordered:
        return not_applicable("nothing-ordered")
    use = decide_use(facts)
    outcome = {"base-of-a-series": Outcome.PASS, "labelled-proof-of-concept": Outcome.WARN, "not-for-k3": Outcome.FAIL}
    told = {"took_s": round(sum(place.took_s for place in [*facts.hosts, *facts.containers]), 1)}
    return Finding(outcome.get(use, Outcome.SKIP), use, told)


def decide_use(facts: CompatibilityFacts) -> Use:
    """
    What a node may be used for, from path, order and health together.

    A broken machine or a path that cannot work is for nothing; a missing answer is for nothing yet; anything to be
    warned of makes it fit for a labelled proof of concept and not for a series.
    """
    path, order, health = judge_path(facts).outcome, judge_acceptance(facts).outcome, judge_health(facts).outcome
    if Outcome.FAIL in (path, health):
        return "not-for-k3"
    if Outcome.SKIP in (path, order, health) or path is Outcome.NOT_APPLICABLE:
        return "nothing-yet"
    return "base-of-a-series" if {path, order, health} == {Outcome.PASS} else "labelled-proof-of-concept"
