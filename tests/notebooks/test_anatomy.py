"""Every notebook has the same anatomy, holds no result, and takes the parameters of the session model."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest

from k3lib.notebook.document import read_notebook, tags_of, text_of
from k3lib.notebook.parameters import read_parameters
from k3lib.spec.session import SESSION_MODELS, SessionSpec
from k3lib.spec.vocabulary import StageName
from k3lib.workbook.triage_notebook import open_triage

QUESTION = "a question?"
ANATOMY = [
    "Parameters",
    "Setup",
    "What we know, what we expect, what would change our mind",
    QUESTION,
    "Verdict",
    "Result",
    "How this can mislead",
    "Next",
    "Sources",
]
TITLE_TABLE = ["question", "needs", "gives", "takes", "without a GPU?"]
LINES_PER_CELL = 14
"""About twelve; parameters and the call that opens a stage have a line each, however many there are."""


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    """The cells of one kind."""
    return [cell for cell in read_notebook(notebook)["cells"] if cell["cell_type"] == kind]


def code(notebook: Path) -> list[str]:
    """The sources of the code cells."""
    return [text_of(cell["source"]) for cell in cells(notebook, "code")]


def sections(notebook: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Heading of level 2 and the cells below it, the heading's own included."""
    found: list[tuple[str, list[dict[str, Any]]]] = []
    for cell in read_notebook(notebook)["cells"]:
        first = text_of(cell["source"]).split("\n", 1)[0]
        if cell["cell_type"] == "markdown" and first.startswith("## "):
            found.append((first.removeprefix("## "), []))
        if found:
            found[-1][1].append(cell)
    return found


def test_the_title_is_its_number_and_a_question_with_its_table(notebook: Path) -> None:
    """The first cell says which question the notebook answers, what it needs, gives and takes."""
    first = text_of(read_notebook(notebook)["cells"][0]["source"])
    number = notebook.stem.split("_")[0]
    assert re.match(rf"# {number} · [^\n]+\?\n", first)
    assert TITLE_TABLE == re.findall(r"^\| \*\*(.+?)\*\* \|", first, re.M)


def test_the_headings_are_the_fixed_ones_in_order(notebook: Path) -> None:
    """Only the questions differ, and there is at least one."""
    headings = [QUESTION if heading.endswith("?") else heading for heading, _ in sections(notebook)]
    without_repeats = [heading for before, heading in pairwise(["", *headings]) if before != heading]
    assert ANATOMY == without_repeats


def test_a_question_is_answered_by_code_and_says_how_to_read_it(notebook: Path) -> None:
    """One short cell, then one line of help."""
    for heading, below in sections(notebook):
        if heading.endswith("?"):
            assert ["markdown", "code", "markdown"] == [cell["cell_type"] for cell in below], heading
            assert text_of(below[-1]["source"]).startswith("*How to read this:*"), heading


def test_the_tags_stand_where_tools_look_for_them(notebook: Path) -> None:
    """parameters first, setup second, then verdict, and result last; a tag occurs once."""
    tagged = [tags_of(cell) for cell in cells(notebook, "code")]
    assert [["parameters"], ["setup"]] == tagged[:2]
    assert ["parameters", "setup", "verdict", "result"] == [tag for tags in tagged for tag in tags]
    assert ["result"] == tagged[-1]


def test_no_cell_defines_or_catches_anything(notebook: Path) -> None:
    """No def, class, lambda or try, no magic, and at most about a dozen lines: logic lives in the library."""
    for cell, source in zip(cells(notebook, "code"), code(notebook), strict=True):
        assert len(source.splitlines()) <= LINES_PER_CELL or {"parameters", "setup"} & set(tags_of(cell)), source
        forbidden = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Try)
        assert [] == [node for node in ast.walk(ast.parse(source)) if isinstance(node, forbidden)], source


def test_cells_import_from_the_library_and_the_display_only(notebook: Path) -> None:
    """k3lib and IPython.display, nothing else."""
    imported = set()
    for node in (node for source in code(notebook) for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert imported
    assert set() == {name for name in imported if name.split(".")[0] != "k3lib" and name != "IPython.display"}


def test_no_result_is_committed(notebook: Path) -> None:
    """No outputs, no execution counts, no traces of a run in the metadata."""
    document = read_notebook(notebook)
    nbformat.validate(document)
    assert [] == [cell["id"] for cell in document["cells"] if cell.get("outputs") or cell.get("execution_count")]
    assert {"kernelspec", "language_info"} >= set(document["metadata"])
    assert set() == {key for cell in document["cells"] for key in cell["metadata"]} - {"tags"}


def test_ids_are_words_and_unique(notebook: Path) -> None:
    """Fixed, speaking ids: two runs compare clean, and an error can name its cell."""
    ids = [cell["id"] for cell in read_notebook(notebook)["cells"]]
    assert len(ids) == len(set(ids))
    assert [] == [cell_id for cell_id in ids if not re.fullmatch(r"[a-z][a-z-]*", cell_id)]


def test_parameters_are_one_literal_per_line_with_a_meaning(notebook: Path) -> None:
    """`name: type = value  # meaning, unit`, and nothing else in the cell."""
    parameters = read_parameters(notebook)
    lines = next(s for s, c in zip(code(notebook), cells(notebook, "code"), strict=True) if "parameters" in tags_of(c))
    assert len(parameters) == len(lines.splitlines())
    assert [] == [p.name for p in parameters if not (p.annotation and p.help)]


def test_a_stage_takes_the_parameters_of_the_session_model(notebook: Path) -> None:
    """The same names with the same defaults."""
    if notebook.stem not in set(StageName):
        pytest.skip("not a stage of the calendar")
    model = SESSION_MODELS.get(StageName(notebook.stem), SessionSpec)().model_dump()
    assert model == {parameter.name: parameter.default for parameter in read_parameters(notebook)}


OPENERS: dict[str, Callable[..., object]] = {"05_triage": open_triage}


def test_a_notebook_outside_the_calendar_takes_what_its_opener_takes(notebook: Path) -> None:
    """Where no session model says which parameters there are, the function that opens it does."""
    if notebook.stem not in OPENERS:
        pytest.skip("a stage of the calendar, or the start page")
    assert list(inspect.signature(OPENERS[notebook.stem]).parameters) == [p.name for p in read_parameters(notebook)]
