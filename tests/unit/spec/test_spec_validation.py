"""From data to models: the four lines for everything a file can get wrong."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, field_validator

from k3lib.errors import SpecError
from k3lib.spec.model import Strict
from k3lib.spec.validation import load_model, nearest, refuse


class Colour(StrEnum):
    """Two words."""

    RED = "red"
    BLUE = "dark-blue"


class Inner(Strict):
    """A part."""

    alpha: int = 0
    word: Literal["one", "two"] = "one"


class Outer(Strict):
    """A whole with every kind of part."""

    colour: Colour = Colour.RED
    inner: Inner = Inner()
    many: list[Inner] = Field(default_factory=list)
    named: dict[str, Inner | None] = Field(default_factory=dict)
    either: Inner | list[int] | None = None
    share: float = Field(default=0.5, gt=0)
    day: str = "today"
    free: dict[str, Any] = Field(default_factory=dict)

    @field_validator("day")
    @classmethod
    def _no_monday(cls, day: str) -> str:
        if day == "monday":
            raise refuse("no mondays", expected="another day", next="wait")
        return day


class Needy(Strict):
    """One key that must be there."""

    name: str


def _error(data: dict[str, Any], model: type[Strict] = Outer) -> str:
    with pytest.raises(SpecError) as caught:
        load_model(model, data, source="a.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (
            {"colour": "dark-blu"},
            [
                "a.yaml: colour is not one of its words",
                "'red' or 'dark-blue'",
                'colour = "dark-blu"',
                "write dark-blue",
            ],
        ),
        (
            {"many": [{}, {"alphaa": 1}]},
            ["a.yaml: unknown key many[1].alphaa", "alpha", "many[1].alphaa = 1", "write alpha, or take the key out"],
        ),
        (
            {"named": {"x": {"alph": 2}}},
            ["a.yaml: unknown key named.x.alph", "alpha", "named.x.alph = 2", "write alpha, or take the key out"],
        ),
        (
            {"either": {"alph": 2}},
            [
                "a.yaml: unknown key either.alph (and 1 more)",
                "alpha",
                "either.alph = 2",
                "write alpha, or take the key out",
            ],
        ),
        (
            {"share": "1e-1"},
            [
                "a.yaml: share is text",
                "a number",
                'share = "1e-1"',
                "take the quotes away; YAML reads 1e3 as text, so write 1000",
            ],
        ),
        ({"day": "monday"}, ["a.yaml: day: no mondays", "another day", 'day = "monday"', "wait"]),
        (
            {"share": 0, "inner": {"word": "twoo"}},
            [
                "a.yaml: inner.word is not one of its words (and 1 more)",
                "'one' or 'two'",
                'inner.word = "twoo"',
                "write two",
            ],
        ),
        (
            {"share": float("inf")},
            [
                "a.yaml holds a value that no parameter can have",
                "text, numbers, true or false, lists and mappings",
                "Out of range float values are not JSON compliant",
                "correct the file and run again",
            ],
        ),
    ],
)
def test_four_lines(data: dict[str, Any], lines: list[str]) -> None:
    """The whole text is compared: key path, nearest valid word, value, next step."""
    what, expected, evidence, next_step = lines
    assert (f"SpecError: {what}\n  expected: {expected}\n  evidence: {evidence}\n  next:     {next_step}") == _error(
        data
    ).replace(": inf", "")


def test_missing_key() -> None:
    """A missing key is named, with the keys that are there."""
    assert "name is missing" in _error({}, Needy)
    assert "the keys there are nam" in _error({"nam": "x"}, Needy)


def test_nothing_is_converted() -> None:
    """Only an enumeration takes its text; a number is no text, a truth no number, a date becomes its ISO text."""
    assert Colour.BLUE is load_model(Outer, {"colour": "dark-blue"}, source="a").colour
    assert "2026-11-30" == load_model(Outer, {"day": date(2026, 11, 30)}, source="a").day
    for data in ({"day": 1}, {"inner": {"alpha": True}}, {"inner": {"alpha": 1.0}}, {"inner": {"alpha": "1"}}):
        _error(data)


def test_order_of_free_parts_is_kept() -> None:
    """Keys of a free mapping keep their order."""
    assert ["z", "a"] == list(load_model(Outer, {"free": {"z": 1, "a": 2}}, source="a").free)


def test_long_values_are_cut() -> None:
    """A long value is shown by its start."""
    assert max(map(len, _error({"inner": "x" * 500}).splitlines())) < 160


def test_nearest() -> None:
    """Far words have no neighbour."""
    assert ("alpha", None) == (nearest("alpah", ["alpha", "word"]), nearest("zzz", ["alpha", "word"]))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(list(Outer.model_fields)) | st.text(max_size=6), VALUES, max_size=4))
def test_any_data_loads_or_is_refused(data: dict[str, Any]) -> None:
    """Whatever a file holds, it loads or gives our four lines; nothing else comes out."""
    words = "four\n" * 3
    try:
        load_model(Outer, data, source="a.yaml")
    except SpecError as error:
        words = str(error)
    assert 4 == len(words.split("\n"))


def test_key_with_a_line_break() -> None:
    """A key that holds a line break does not break the four lines."""
    assert "unknown key 'a\\nb'" in _error({"a\nb": 1})
