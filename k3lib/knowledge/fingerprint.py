"""How each field of a fingerprint is compared and what a difference takes away; the facts are in `fingerprint.yaml`."""

from __future__ import annotations

from functools import cache

from pydantic import Field, model_validator

from k3lib.knowledge.package_data import read_facts
from k3lib.spec.fingerprint import plain_name
from k3lib.spec.model import Strict
from k3lib.spec.settings import ChangeGroup
from k3lib.spec.vocabulary import Part, Severity, Voids


class FieldFacts(Strict):
    """
    How one field, or all that begin alike, is compared.

    Args:
        name: Flat name without a view; a `*` at the end stands for any rest.
        part: Identity, factor or noise.
        group: The group it moves with, or None where it counts by itself.
        kind: What a difference in it is called; noise has none.
        derived_from: Fields that move it: it does not count where one of them differs too.
        open: Fields of this entry come and go: one that is not there is not set, rather than unknown.
        with_place: Another place has its own: it counts as part of that.
        tolerance: Numbers that differ by less than this fraction are the same.
    """

    name: str
    part: Part = Field(strict=False)
    group: ChangeGroup | None = Field(default=None, strict=False)
    kind: str | None = None
    derived_from: list[str] = Field(default_factory=list)
    open: bool = False
    with_place: bool = False
    tolerance: float = 0.0

    def matches(self, name: str) -> bool:
        """True if this entry is about that field."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


class KindFacts(Strict):
    """
    What one kind of difference or condition weighs.

    Args:
        severity: Note, warn or break.
        voids: What it takes away.
        source: Key of the file's sources.
    """

    severity: Severity = Field(strict=False)
    voids: Voids = Field(strict=False)
    source: str


class FingerprintFacts(Strict):
    """
    The file.

    Args:
        schema_version: Of the file.
        dated: The day of the last look, ISO 8601.
        sources: Short name to full source.
        fields: In the file's order; the longest match counts.
        kinds: Every kind of difference and condition.
    """

    schema_version: int
    dated: str
    sources: dict[str, str]
    fields: list[FieldFacts]
    kinds: dict[str, KindFacts]

    @model_validator(mode="after")
    def _every_name_is_known(self) -> FingerprintFacts:
        if odd := {f.kind for f in self.fields if f.kind} - self.kinds.keys():
            raise ValueError(f"fields name unknown kinds: {sorted(odd)}")
        if unmatched := [f.name for f in self.fields if (f.kind is None) != (f.part is Part.NOISE)]:
            raise ValueError(f"noise has no kind, everything else one: {unmatched}")
        if odd := {k.source for k in self.kinds.values()} ^ self.sources.keys():
            raise ValueError(f"sources without a use, or uses without a source: {sorted(odd)}")
        return self


@cache
def fingerprint_facts() -> FingerprintFacts:
    """The dated facts about fingerprints that ship with this package."""
    return read_facts("fingerprint.yaml", FingerprintFacts)


@cache
def field_facts(name: str) -> FieldFacts:
    """
    How a field is compared; a field nobody knows is identity and counts by itself, so that nothing slips through.

    Args:
        name: Flat name, with or without its view.

    >>> field_facts("container/driver.module").group.value
    'driver'
    >>> field_facts("environment.NCCL_DEBUG").kind, field_facts("gpu.clocks").part.value
    ('variable-changed', 'noise')
    """
    plain = plain_name(name)
    matching = [f for f in fingerprint_facts().fields if f.matches(plain)]
    if not matching:
        return FieldFacts(name=plain, part=Part.IDENTITY, kind="other-changed")
    return max(matching, key=lambda f: len(f.name))


def kind_facts(kind: str) -> KindFacts:
    """What a kind of difference or condition weighs; raises KeyError for one that is not in the file."""
    return fingerprint_facts().kinds[kind]


@cache
def kinds_by_weight() -> tuple[str, ...]:
    """Every kind, the most severe first, those of equal severity in the file's order."""
    kinds = fingerprint_facts().kinds
    return tuple(sorted(kinds, key=lambda kind: -kinds[kind].severity.order))
