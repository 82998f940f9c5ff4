"""
The parameters of a notebook: the assignments of its cell tagged `parameters`.

Read with Python's own parser. papermill's inspection garbles or drops a line with a second `=`, a `#` in a
string, or an annotation such as `float | None` (papermill 2.7.0, translators.py, PythonTranslator.inspect).
Lines as they stand in a notebook:

    stage: str = "30_minimal_start"  # the notebook's own name
    trials: int = 5  # fresh starts of the engine per arm
    change: dict = {}  # the one changed setting, name: value or list of values
    limit_s: float | None = None  # time-out of a cell, s
    note: str = "a = b # c"  # free text

A notebook without such a cell, or with an empty one, takes no parameters.
"""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from k3lib.errors import SpecError
from k3lib.notebook.document import read_notebook, tags_of, text_of


@dataclass(frozen=True)
class Parameter:
    """
    One parameter of a notebook.

    Args:
        name: As it is assigned.
        default: The literal that stands in the notebook.
        annotation: Its type as written, or None.
        help: Meaning and unit: the comment behind it, without `#`; empty if there is none.
    """

    name: str
    default: object
    annotation: str | None
    help: str


def read_parameters(path: Path) -> list[Parameter]:
    """
    The parameters of a notebook, in their order.

    Args:
        path: A notebook.

    Returns:
        One per assignment of the cell tagged `parameters`; empty if there is no such cell.

    Raises:
        RecordError: The notebook cannot be read.
        SpecError: The cell holds anything but plain assignments of literals.
    """
    for cell in read_notebook(path)["cells"]:
        if cell["cell_type"] == "code" and "parameters" in tags_of(cell):
            return parse_parameters(text_of(cell["source"]), where=str(path))
    return []


def parse_parameters(source: str, where: str = "the parameters cell") -> list[Parameter]:
    """
    The parameters in the source of a cell.

    Args:
        source: Python: assignments of literals, comments, nothing else.
        where: The notebook, for the error.

    Raises:
        SpecError: Anything else; names the line.

    >>> parse_parameters('note: str = "a = b # c"  # free text')
    [Parameter(name='note', default='a = b # c', annotation='str', help='free text')]
    """
    try:
        statements = ast.parse(source).body
        comments = _comments(source)
    except (SyntaxError, tokenize.TokenError) as problem:
        raise _not_plain(where, str(problem)) from None
    found = []
    for statement in statements:
        try:
            found.append(_parameter(statement, comments))
        except ValueError:
            line = source.splitlines()[statement.lineno - 1]
            raise _not_plain(where, f"line {statement.lineno}: {line.strip()}") from None
    return found


def check_names(given: Iterable[str], parameters: list[Parameter], where: str) -> None:
    """
    Refuse a name that the notebook does not have, before anything is started.

    Raises:
        SpecError: Names the unknown one, the nearest valid one and where they stand.
    """
    known = [parameter.name for parameter in parameters]
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"its parameters are: {', '.join(known) or 'none'}"
        raise SpecError(
            f"unknown parameter {name}; no kernel was started",
            expected=f"a parameter of {where}; {hint}",
            evidence=f"{name} is assigned nowhere in its cell tagged `parameters`",
            next="correct the name in the session file",
        )


def _parameter(statement: ast.stmt, comments: dict[int, str]) -> Parameter:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
            kind: str | None = ast.unparse(annotation)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            kind = None
        case _:
            raise ValueError("not a plain assignment")
    help_text = comments.get(statement.end_lineno or statement.lineno, "")
    return Parameter(name=name, default=ast.literal_eval(value), annotation=kind, help=help_text)


def _comments(source: str) -> dict[int, str]:
    """Line number to the comment on that line, without `#`."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("#").strip() for token in tokens if token.type == tokenize.COMMENT}


def _not_plain(where: str, evidence: str) -> SpecError:
    return SpecError(
        f"the parameters of {where} cannot be read",
        expected="one plain literal per line: name: type = value  # meaning, unit",
        evidence=evidence,
        next="correct the cell tagged `parameters`",
    )
