"""The parameters cell is read by Python's own parser, and names are checked before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3lib.errors import SpecError
from k3lib.notebook.execute import execute_notebook
from k3lib.notebook.parameters import Parameter, parse_parameters, read_parameters


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("trials: int = 5  # starts, a = b", Parameter("trials", 5, "int", "starts, a = b")),
        ("note = '# not a comment'  # text", Parameter("note", "# not a comment", None, "text")),
        ("limit_s: float | None = None  # s", Parameter("limit_s", None, "float | None", "s")),
        ("limit_s = None  # type: float seconds", Parameter("limit_s", None, None, "type: float seconds")),
        ("change: dict = {'a': [1, -2.5]}", Parameter("change", {"a": [1, -2.5]}, "dict", "")),
    ],
)
def test_lines_that_papermill_garbles_are_read_exactly(line: str, expected: Parameter) -> None:
    """A second `=`, a `#` in a string, a nullable annotation: name, literal, annotation and comment come back."""
    assert [expected] == parse_parameters(f"# a comment line\n{line}\n")


@pytest.mark.parametrize("line", ["import os", "a = b", "a, b = 1, 2", "a = f()", "a.b = 1", "%magic", "a += 1"])
def test_anything_but_a_plain_literal_is_refused(line: str) -> None:
    """A line that is no plain assignment is an error that shows it."""
    with pytest.raises(SpecError) as refusal:
        parse_parameters(f"trials = 5\n{line}", where="30.ipynb")
    assert str(refusal.value).startswith("SpecError: the parameters of 30.ipynb cannot be read\n")


def test_a_notebook_without_parameters_takes_none(build, tmp_path: Path) -> None:
    """Its list is that of its tagged cell; without one it is empty."""
    assert ["trials", "note"] == [parameter.name for parameter in read_parameters(build())]
    bare = tmp_path / "bare.ipynb"
    bare.write_text('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}')
    assert [] == read_parameters(bare)


def test_an_unknown_parameter_is_refused_before_a_kernel_starts(build, tmp_path: Path) -> None:
    """The four lines name the nearest valid one, and no output is written."""
    with pytest.raises(SpecError) as refusal:
        execute_notebook(build(), tmp_path / "out.ipynb", {"trial": 3}, environment={}, cwd=tmp_path)
    assert str(refusal.value) == (
        "SpecError: unknown parameter trial; no kernel was started\n"
        "  expected: a parameter of in.ipynb; did you mean trials?\n"
        "  evidence: trial is assigned nowhere in its cell tagged `parameters`\n"
        "  next:     correct the name in the session file"
    )
    assert not (tmp_path / "out.ipynb").exists()
