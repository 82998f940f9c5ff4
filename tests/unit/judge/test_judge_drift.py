"""Drift: pairs of fingerprints with the expected reading, and the laws that hold for any pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from k3lib.judge.conditions import find_conditions
from k3lib.judge.drift import compare_fingerprints
from k3lib.knowledge.fingerprint import fingerprint_facts
from k3lib.knowledge.sentences import load_sentences
from k3lib.report.drift import render_condition, render_drift, render_drift_text
from k3lib.spec.fingerprint import Fingerprint
from k3lib.spec.settings import name_changes
from k3lib.spec.vocabulary import Outcome, Voids

CASES = sorted(p.parent for p in (Path(__file__).parents[2] / "cases" / "fingerprints").glob("*/expected.yaml"))


def read(case: Path, side: str) -> Fingerprint:
    """One side of a pair."""
    return Fingerprint.model_validate(json.loads((case / f"{side}.json").read_bytes()))


def test_there_are_pairs() -> None:
    """The corpus holds at least twenty pairs, and every kind of difference that the method names."""
    assert len(CASES) >= 20
    kinds = {d["kind"] for case in CASES for d in yaml.safe_load((case / "expected.yaml").read_text())["differences"]}
    assert {
        "moved-tag", "half-upgraded-driver", "gpu-missing", "gpu-order", "variable-inherited", "debug-variable",
        "gpus-replaced", "mount-changed", "gpus-vanished",
    } <= kinds  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_pair_reads_as_expected(case: Path) -> None:
    """Kinds, what moved, severity, conditions and what is unknown are those that a person wrote down."""
    expected = yaml.safe_load((case / "expected.yaml").read_text())
    report = compare_fingerprints(read(case, "before"), read(case, "after"))
    seen = {
        "same_place": report.same_place,
        "outcome": report.outcome.value,
        "voids": report.voids.value,
        "differences": [
            {"kind": d.kind, "change": d.members[0].change, "severity": d.severity.value} for d in report.differences
        ],
        "appeared": [c.kind for c in report.appeared],
        "stayed": [c.kind for c in report.stayed],
        "unknown": [u.name for u in report.unknown],
    }
    assert {key: expected[key] for key in seen} == seen


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_difference_is_said_in_two_languages(case: Path) -> None:
    """Each has a sentence and a next step, and French is not English."""
    report = compare_fingerprints(read(case, "before"), read(case, "after"))
    for item, render in [
        *((d, render_drift) for d in report.differences),
        *((c, render_condition) for c in (*report.appeared, *report.stayed)),
    ]:
        english, french = render(item, "en"), render(item, "fr")  # type: ignore[operator]
        assert all(english)
        assert all(french)
        assert english[1] != french[1]
    assert render_drift_text(report, "en") != render_drift_text(report, "fr")


def test_every_kind_has_its_sentence() -> None:
    """A kind without a sentence would break the comparison on the day it happens."""
    said = load_sentences()
    assert set() == fingerprint_facts().kinds.keys() - (said["drift"].keys() | said["condition"].keys())


def test_a_group_is_one_change() -> None:
    """Image, release and packages moved together: one change, however many fields and views show it."""
    case = next(c for c in CASES if c.name == "05_new_image")
    report = compare_fingerprints(read(case, "before"), read(case, "after"))
    assert ["image"] == name_changes(report.changes)
    assert len(report.differences[0].members) > 3


def test_an_empty_side_never_passes() -> None:
    """Fail closed: nothing collected is unknown, not equal."""
    known = Fingerprint(identity={"engine.release": "0.33.0", "host.kernel": "6.8"})
    report = compare_fingerprints(known, Fingerprint())
    assert Outcome.SKIP is report.outcome
    assert ["engine.release", "host.kernel"] == [u.name for u in report.unknown]


def test_another_place_never_compares_metrics() -> None:
    """C12: on another machine, numbers are void whatever else is equal."""
    gpus = [[{"uuid": f"GPU-{salt}{n}", "name": "B300"} for n in range(8)] for salt in "ab"]
    report = compare_fingerprints(*(Fingerprint(identity={"gpus": these}) for these in gpus))
    assert report.same_place is False
    assert Voids.METRICS is report.voids


def test_an_unknown_field_counts_by_itself() -> None:
    """A field that no entry knows is a difference of its own: nothing slips through."""
    report = compare_fingerprints(Fingerprint(identity={"novel": 1}), Fingerprint(identity={"novel": 2}))
    assert ["other-changed"] == [d.kind for d in report.differences]
    assert ["novel"] == name_changes(report.changes)


values = st.one_of(st.none(), st.integers(0, 3), st.text("ab/.", max_size=4))
names = st.sampled_from(
    ["engine.release", "image.tag", "image.digest", "driver.nvidia.loaded", "driver.nvidia.library", "host.name",
     "host.kernel", "limit.nofile", "mount./a", "environment.NCCL_DEBUG", "container/driver.nvidia.library", "x"]
)  # fmt: skip
prints = st.builds(
    Fingerprint, identity=st.dictionaries(names, values), reasons=st.dictionaries(names, st.just("not told"))
)


@given(prints)
def test_a_place_equals_itself(place: Fingerprint) -> None:
    """Nothing differs, and the digest is the same."""
    report = compare_fingerprints(place, place)
    assert not report.drifted
    assert [] == report.unknown
    again: dict[str, Any] = json.loads(place.model_dump_json())
    assert place.digest == Fingerprint.model_validate(again).digest


@given(prints, prints)
def test_drift_is_symmetric_and_sayable(one: Fingerprint, other: Fingerprint) -> None:
    """What differs one way differs the other way, field by field, and every pair can be put into words."""
    there, back = compare_fingerprints(one, other), compare_fingerprints(other, one)
    assert {m.key for d in there.differences for m in d.members} == {m.key for d in back.differences for m in d.members}
    assert {c.subject for c in there.appeared} <= {c.subject for c in find_conditions(other)}
    assert render_drift_text(there)
    assert render_drift_text(back, "fr")
