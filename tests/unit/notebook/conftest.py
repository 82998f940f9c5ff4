"""Small notebooks, built here, and a place to run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from k3lib.notebook.document import RECORD_MIME

CLOSE = f"""from IPython.display import display
display({{"{RECORD_MIME}": {{"trials": trials}}, "text/plain": "closed"}}, raw=True)"""

Build = Callable[..., Path]


def code(source: str, cell_id: str, *tags: str) -> Any:
    """A code cell with a fixed id."""
    return nbformat.v4.new_code_cell(source, id=cell_id, metadata={"tags": list(tags)})


def text(source: str, cell_id: str) -> Any:
    """A markdown cell with a fixed id."""
    return nbformat.v4.new_markdown_cell(source, id=cell_id)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Writes a notebook: a title, the parameters, the given cells `c0`, `c1`, …, and by default a result cell."""

    def write(*sources: str, result: str | None = CLOSE, name: str = "in.ipynb") -> Path:
        cells = [
            text("# 30 · Does it start?", "title"),
            code('trials: int = 5  # fresh starts, a = b\nnote: str = ""  # free text', "parameters", "parameters"),
            *[code(source, f"c{number}") for number, source in enumerate(sources)],
        ]
        if result is not None:
            cells.append(code(result, "result", "result"))
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, tmp_path / name)
        return tmp_path / name

    return write
