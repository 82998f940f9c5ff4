"""What is wrong with a place by itself, whatever it is compared with: half a driver, a lost GPU, a debug variable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from k3lib.knowledge.fingerprint import kind_facts
from k3lib.knowledge.settings import debug_variables
from k3lib.spec.fingerprint import Fingerprint, plain_name, view_of
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Severity, Voids

_ENVIRONMENT = "environment."


class Condition(Fact):
    """
    One thing that is wrong with a place.

    Args:
        kind: What it is called in `knowledge/fingerprint.yaml`.
        view: The view that shows it, empty for the main host.
        severity: How much it weighs.
        voids: What it takes away.
        facts: Values that its sentence needs.
    """

    kind: str
    view: str = ""
    severity: Severity
    voids: Voids
    facts: dict[str, Any] = Field(default_factory=dict)

    @property
    def subject(self) -> tuple[str, str, tuple[str, ...]]:
        """What makes it the same condition at another moment: counts and amounts may have moved."""
        return self.kind, self.view, tuple(map(str, self.facts.get("names", [])))


def find_conditions(fingerprint: Fingerprint) -> list[Condition]:
    """
    Everything that is wrong with one place, worst first.

    Args:
        fingerprint: The place; conditions are read from identity and noise alike.

    Returns:
        Conditions; empty if none was found. What was not collected raises none.

    Source:
        R-12 (loaded is not installed), R-15 and R-63 (who else holds a GPU), R-17 (debug variables).

    >>> place = Fingerprint(identity={"driver.nvidia.loaded": "580.82", "driver.nvidia.library": "580.95"})
    >>> [condition.kind for condition in find_conditions(place)]
    ['half-upgraded-driver']
    """
    found = [
        Condition(kind=kind, view=view, severity=(known := kind_facts(kind)).severity, voids=known.voids, facts=facts)
        for view in fingerprint.views()
        for kind, facts in _look(_fields(fingerprint, view))
    ]
    found += _across_views(fingerprint, {c.view for c in found if c.kind == "half-upgraded-driver"})
    return sorted(found, key=lambda c: -c.severity.order)


def _fields(fingerprint: Fingerprint, view: str) -> dict[str, Any]:
    every = fingerprint.noise | fingerprint.factor | fingerprint.identity
    return {plain_name(name): value for name, value in every.items() if view_of(name) == view and value is not None}


def _look(fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _driver(fields)
    yield from _gpus(fields)
    yield from _processes(fields.get("gpu.processes", []))
    set_here = {n.removeprefix(_ENVIRONMENT): str(v) for n, v in fields.items() if n.startswith(_ENVIRONMENT)}
    if debug := debug_variables(set_here):
        yield "debug-variable", {"names": debug}
    if xids := fields.get("kernel.xids"):
        yield "driver-errors", {"names": sorted({str(code) for code in xids}), "n": len(xids)}
    if restarts := fields.get("restarts"):
        yield "automatic-restart", {"names": restarts}
    current = fields.get("image.tag_points_to")
    if current and current != fields.get("image.id"):
        yield (
            "tag-moved-on",
            {"names": [fields.get("image.tag")], "runs": fields.get("image.id"), "points_to": current},
        )


def _driver(fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for vendor in ("nvidia", "amd"):
        prefix = f"driver.{vendor}."
        told = {part: fields[prefix + part] for part in ("loaded", "library", "asked") if prefix + part in fields}
        if len(set(told.values())) > 1:
            yield "half-upgraded-driver", {"versions": told}
            continue
        waiting, running = fields.get(prefix + "on_disk"), fields.get(prefix + "loaded")
        if waiting and running and waiting != running:
            yield "driver-upgrade-pending", {"loaded": running, "on_disk": waiting}


def _gpus(fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if lost := fields.get("gpu.lost"):
        yield "gpu-lost", {"names": sorted(lost), "why": sorted(set(lost.values()))}
    if errors := fields.get("gpu.errors"):
        yield "memory-errors", {"names": sorted(errors), "what": sorted({w for all_ in errors.values() for w in all_})}
    if throttles := fields.get("gpu.throttles"):
        yield (
            "clocks-throttled",
            {"names": sorted(throttles), "why": sorted({w for every in throttles.values() for w in every})},
        )


def _processes(processes: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The engine under study may hold memory; an earlier one and a stranger may not."""
    for role, kind in (("vllm", "leftover-process"), ("other", "foreign-process")):
        these = [p for p in processes if p.get("role") == role]
        if these:
            held = [p["memory_bytes"] for p in these if p.get("memory_bytes") is not None]
            yield (
                kind,
                {
                    "names": sorted({f"{p.get('name') or 'unknown program'} (pid {p['pid']})" for p in these}),
                    "memory_bytes": sum(held) if held else None,
                },
            )


def _across_views(fingerprint: Fingerprint, known: set[str]) -> Iterator[Condition]:
    """A container carries its own user-space library, which must be that of the host's loaded module (R-12)."""
    facts = kind_facts("half-upgraded-driver")
    for view in fingerprint.views():
        if not view.startswith("container") or view in known or "" in known:
            continue
        loaded = fingerprint.value("driver.nvidia.loaded")
        library = fingerprint.value(f"{view}/driver.nvidia.library")
        if loaded and library and loaded != library:
            versions = {"loaded": loaded, f"{view} library": library}
            yield Condition(
                kind="half-upgraded-driver",
                view=view,
                severity=facts.severity,
                voids=facts.voids,
                facts={"versions": versions},
            )
