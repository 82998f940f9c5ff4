"""Strict YAML: what papermill would read silently wrong is refused with its line."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.errors import SpecError
from k3lib.spec.strict_yaml import parse_yaml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3 holds the key a twice"),
        ("base:\n  x: 1\n  x: 2\n", "f.yaml:3 holds the key base.x twice"),
        ("a: &x 1\nb: *x\n", "f.yaml:1 holds an anchor"),
        ("a: !!python/object/apply:os.system ['true']\n", "holds the tag"),
        ("- a\n- b\n", "holds no mapping"),
        ("a: [\n", "is not YAML"),
    ],
)
def test_refused_with_its_place(text: str, said: str) -> None:
    """Duplicates, anchors, tags, lists and broken YAML name the file, and the line where there is one."""
    with pytest.raises(SpecError) as refused:
        parse_yaml(text, "f.yaml")
    assert said in refused.value.what


def test_empty_is_an_empty_mapping() -> None:
    """An empty file holds no keys; the model then says which are missing."""
    assert {} == parse_yaml("", "f.yaml")


@given(st.text(max_size=200))
def test_any_text_is_a_mapping_or_a_clear_refusal(text: str) -> None:
    """Whatever the text, the answer is a mapping or a SpecError."""
    with contextlib.suppress(SpecError):
        assert isinstance(parse_yaml(text, "f.yaml"), dict)
