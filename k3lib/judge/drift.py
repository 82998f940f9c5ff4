"""
Two fingerprints, compared: every difference in words, how much it weighs, what it takes away.

Groups that move together (driver, image, topology, site) are one difference with its members. A field that one side
does not know is unknown, never equal and never different.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from k3lib.judge.conditions import Condition, find_conditions
from k3lib.knowledge.fingerprint import field_facts, kind_facts, kinds_by_weight
from k3lib.knowledge.settings import debug_variables
from k3lib.spec.fingerprint import Fingerprint, plain_name, view_of
from k3lib.spec.model import Fact
from k3lib.spec.settings import ChangeGroup, Difference
from k3lib.spec.vocabulary import Outcome, Severity, Voids

_ENVIRONMENT = "environment."


class Drift(Fact):
    """
    One difference between two fingerprints, however many fields show it.

    Args:
        kind: What it is called in `knowledge/fingerprint.yaml`.
        group: The group that moved, or None where a field moved by itself.
        severity: How much it weighs.
        voids: What it takes away.
        members: The fields that show it, before (`ours`) and after (`theirs`).
        facts: Values that its sentence needs.
    """

    kind: str
    group: ChangeGroup | None = None
    severity: Severity
    voids: Voids
    members: list[Difference]
    facts: dict[str, Any] = Field(default_factory=dict)


class Unknown(Fact):
    """
    A field that only one side knows.

    Args:
        name: The field.
        known: `before` or `after`.
        reason: Why the other side does not know it.
    """

    name: str
    known: str
    reason: str


class DriftReport(Fact):
    """
    What differs between two places or two moments.

    Args:
        same_place: Whether it is the same machine; None if that cannot be told.
        differences: What differs, worst first.
        appeared: Conditions of the second that the first did not have.
        stayed: Conditions of both.
        gone: Conditions that only the first had.
        unknown: Fields that only one side knows.
    """

    same_place: bool | None
    differences: list[Drift] = Field(default_factory=list)
    appeared: list[Condition] = Field(default_factory=list)
    stayed: list[Condition] = Field(default_factory=list)
    gone: list[Condition] = Field(default_factory=list)
    unknown: list[Unknown] = Field(default_factory=list)

    @property
    def drifted(self) -> bool:
        """Something differs, or something is wrong that was not."""
        return bool(self.differences or self.appeared)

    @property
    def changes(self) -> list[Difference]:
        """One difference per independent change, for the check that a session changes one variable."""
        return [drift.members[0] for drift in self.differences]

    @property
    def voids(self) -> Voids:
        """The most that any of it takes away; in another place metrics always go (C12)."""
        found = [d.voids for d in self.differences] + [c.voids for c in (*self.appeared, *self.stayed)]
        if self.same_place is False:
            found.append(Voids.METRICS)
        return max(found, key=list(Voids).index, default=Voids.NOTHING)

    @property
    def outcome(self) -> Outcome:
        """FAIL for drift, SKIP if only one side knows a field, else PASS."""
        if self.drifted:
            return Outcome.FAIL
        return Outcome.SKIP if self.unknown else Outcome.PASS


@dataclass(frozen=True)
class PlaceFacts:
    """
    The fingerprints around a session.

    Args:
        begin: Taken before its first start; None for a session of an older product.
        end: Taken after its last; None if it was not closed in order.
        baseline: That of the last stable session when this one began, or None.
        baseline_name: That session's name, or None.
        debug_before: Debug variables that reached the engine in the session before, as `NAME=value`.
    """

    begin: Fingerprint | None = None
    end: Fingerprint | None = None
    baseline: Fingerprint | None = None
    baseline_name: str | None = None
    debug_before: tuple[str, ...] = ()

    def during(self) -> DriftReport | None:
        """What changed while it ran; None if that cannot be told."""
        return compare_fingerprints(self.begin, self.end) if self.begin and self.end else None

    def since_stable(self) -> DriftReport | None:
        """What had changed when it began; None if there is nothing to compare with."""
        return compare_fingerprints(self.baseline, self.begin) if self.baseline and self.begin else None

    def conditions(self) -> list[Condition]:
        """What was wrong with the place when it began."""
        return find_conditions(self.begin) if self.begin else []


def compare_fingerprints(before: Fingerprint, after: Fingerprint) -> DriftReport:
    """
    Every difference, explained.

    Args:
        before: The reference.
        after: What is held against it.

    Returns:
        Differences and conditions; a field that neither side knows is left out.

    >>> first = Fingerprint(identity={"driver.nvidia.loaded": "580.82", "driver.nvidia.cuda": "13.0"})
    >>> second = Fingerprint(identity={"driver.nvidia.loaded": "595.20", "driver.nvidia.cuda": "13.3"})
    >>> [drift] = compare_fingerprints(first, second).differences
    >>> drift.kind, drift.group.value, len(drift.members)
    ('driver-changed', 'driver', 2)
    """
    found, unknown = _differing_fields(before, after)
    same_place = _same_place(before, after)
    here, there = find_conditions(before), find_conditions(after)
    fresh = [c for c in there if c.subject not in {old.subject for old in here}]
    drifts = [_explain(members, before, same_place, fresh) for members in _cluster(found, same_place)]
    named = {drift.kind for drift in drifts}
    return DriftReport(
        same_place=same_place,
        differences=sorted(drifts, key=lambda d: (-d.severity.order, -list(Voids).index(d.voids))),
        appeared=[c for c in fresh if c.kind not in named],
        stayed=[c for c in there if c.subject in {old.subject for old in here}],
        gone=[c for c in here if c.subject not in {new.subject for new in there}],
        unknown=unknown,
    )


def _differing_fields(before: Fingerprint, after: Fingerprint) -> tuple[list[Difference], list[Unknown]]:
    ours, theirs = before.identity | before.factor, after.identity | after.factor
    different, unknown = [], []
    for name in dict.fromkeys([*ours, *theirs]):
        a, b = ours.get(name), theirs.get(name)
        if (a is None and b is None) or _same(name, a, b):
            continue
        blind = _why_blind(name, after if b is None else before) if a is None or b is None else None
        if blind is None or (_gpus_vanished(name, a, b) and view_of(name) in after.views()):
            different.append(Difference(key=name, ours=a, theirs=b, group=field_facts(name).group))
        else:
            unknown.append(Unknown(name=name, known="after" if a is None else "before", reason=blind))
    return different, unknown


def _why_blind(name: str, side: Fingerprint) -> str | None:
    """Why a side cannot know a field that the other knows; None if there it is simply not set."""
    view, plain = view_of(name), plain_name(name)
    prefix = f"{view}/" if view else ""
    family = prefix + plain.split(".", 1)[0]
    for key in (name, family, view):
        if key and key in side.reasons:
            return side.reasons[key]
    if view and view not in side.views():
        return f"the view {view} was not collected"
    return None if field_facts(name).open else "not collected"


def _gpus_vanished(name: str, before: Any, after: Any) -> bool:
    return plain_name(name) == "gpus" and bool(before) and after is None


def _same(name: str, before: Any, after: Any) -> bool:
    tolerance = field_facts(name).tolerance
    if tolerance and isinstance(before, int | float) and isinstance(after, int | float):
        return math.isclose(before, after, rel_tol=tolerance)
    return bool(before == after)


def _same_place(before: Fingerprint, after: Fingerprint) -> bool | None:
    """By the boot where it is the same, by the GPUs' UUIDs where both have some, else by the host's name."""
    boot = before.noise.get("session.boot")
    if boot and boot == after.noise.get("session.boot"):
        return True
    ours, theirs = _uuids(before.identity.get("gpus")), _uuids(after.identity.get("gpus"))
    if ours and theirs:
        return bool(ours & theirs)
    here, there = before.identity.get("host.name"), after.identity.get("host.name")
    return here == there if here and there else None


def _uuids(gpus: Any) -> set[str]:
    return {gpu["uuid"] for gpu in gpus or [] if gpu.get("uuid")}


def _cluster(found: list[Difference], same_place: bool | None) -> list[list[Difference]]:
    """Differences that are one: a group over all views, another place with all it brings, a field with its derived."""
    clusters: dict[str, list[Difference]] = {}
    names = {plain_name(d.key) for d in found}
    for difference in found:
        clusters.setdefault(_cluster_of(plain_name(difference.key), names, same_place), []).append(difference)
    return [sorted(members, key=lambda d: bool(field_facts(d.key).derived_from)) for members in clusters.values()]


def _cluster_of(plain: str, names: set[str], same_place: bool | None) -> str:
    facts = field_facts(plain)
    if same_place is False and (facts.with_place or facts.group is ChangeGroup.SITE):
        return ChangeGroup.SITE.value
    if cause := next((field for field in facts.derived_from if field in names), None):
        return _cluster_of(cause, names, same_place)
    # In the same place a GPU that went or came is no move to another site.
    return facts.group.value if facts.group and plain != "gpus" else plain


def _explain(members: list[Difference], before: Fingerprint, same_place: bool | None, fresh: list[Condition]) -> Drift:
    kind, facts = _kind_of(members, before, same_place)
    half = next((c for c in fresh if c.kind == "half-upgraded-driver"), None)
    if kind == "driver-changed" and half is not None:
        kind, facts = half.kind, half.facts
    weight = kind_facts(kind)
    moved = _group_of(kind, members[0])
    return Drift(
        kind=kind,
        group=moved,
        severity=weight.severity,
        voids=weight.voids,
        members=[d.model_copy(update={"group": moved}) for d in members],
        facts={"members": [{"name": d.key, "before": d.ours, "after": d.theirs} for d in members], **facts},
    )


def _group_of(kind: str, first: Difference) -> ChangeGroup | None:
    if kind in ("place-changed", "gpus-replaced"):
        return ChangeGroup.SITE
    return None if plain_name(first.key) == "gpus" else first.group


def _kind_of(members: list[Difference], before: Fingerprint, same_place: bool | None) -> tuple[str, dict[str, Any]]:
    """The name of a difference, and what its sentence needs beside the members."""
    by_name = {plain_name(d.key): d for d in members}
    if "gpus" in by_name:
        return _kind_of_gpus(by_name["gpus"], same_place)
    first, plain = members[0], plain_name(members[0].key)
    if plain.startswith(_ENVIRONMENT):
        return _kind_of_variable(plain.removeprefix(_ENVIRONMENT), first)
    if same_place is False and "host.name" in by_name:
        return "place-changed", {}
    tag = before.value("image.tag")
    if tag and "image.tag" not in by_name and {"image.digest", "image.id"} & by_name.keys():
        return "moved-tag", {"tag": tag}  # the same name for another content is what makes it treacherous
    kinds = {field_facts(d.key).kind or "other-changed" for d in members}
    return next(kind for kind in kinds_by_weight() if kind in kinds), {}


def _kind_of_variable(name: str, difference: Difference) -> tuple[str, dict[str, Any]]:
    after = difference.theirs
    if after is not None and (debug := debug_variables({name: str(after)})):
        return "debug-variable", {"names": debug}
    if name.endswith("_VISIBLE_DEVICES"):
        return "visible-devices", {"variable": name}
    kind = "variable-inherited" if difference.ours is None else "variable-gone" if after is None else "variable-changed"
    return kind, {"variable": name}


def _kind_of_gpus(difference: Difference, same_place: bool | None) -> tuple[str, dict[str, Any]]:
    before, after = _by_uuid(difference.ours), _by_uuid(difference.theirs)
    if difference.theirs is None:
        return "gpus-vanished", {"names": sorted(before), "n": len(before)}
    if same_place is False:
        return "gpus-replaced", {"n_before": len(before), "n_after": len(after)}
    missing, added = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    facts = {"n_before": len(before), "n_after": len(after)}
    if missing:
        return "gpu-missing", {"names": missing, **facts}
    if added:
        return "gpu-added", {"names": added, **facts}
    altered = sorted(uuid for uuid in before if before[uuid] != after.get(uuid))
    return "gpu-altered", {"names": altered, **facts}


def _by_uuid(gpus: Iterable[dict[str, Any]] | None) -> dict[str, dict[str, Any]]:
    return {str(gpu.get("uuid") or gpu.get("pci") or position): gpu for position, gpu in enumerate(gpus or [])}
