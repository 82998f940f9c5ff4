"""
Notebook files, read and written as the JSON they are.

Reads `.ipynb` version 4 with cell ids (nbformat 4.5). Nothing here imports nbformat: a record is read back
in milliseconds.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson

from k3lib.errors import RecordError
from k3lib.record.files import write_atomic
from k3lib.record.redactor import load_redactor
from k3lib.redact import Redactor

RECORD_MIME: Final = "application/vnd.k3.record+json"
"""The private MIME type under which a session's record travels inside its executed notebook."""

RESULT_TAG: Final = "result"
"""The tag of the cell that closes the stage; it is the last code cell."""

INJECTED_TAG: Final = "injected-parameters"
"""papermill's tag of the cell that holds the values of this run."""

BANNER_TAG: Final = "papermill-error-cell-tag"
"""papermill's tag of the cells that say where a run broke; a new run removes them."""

_SPOKEN: Final = frozenset({"data", "text", "evalue", "traceback"})


def read_notebook(path: Path) -> dict[str, Any]:
    """
    The notebook as plain JSON.

    Raises:
        RecordError: Missing, unreadable, not JSON, or not a version 4 notebook.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
        if document["nbformat"] != 4 or not isinstance(document["cells"], list):
            raise ValueError(f"nbformat {document['nbformat']}")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RecordError(
            f"{path} is not a notebook that can be read",
            expected="a Jupyter notebook, nbformat 4",
            evidence=f"{type(problem).__name__}: {problem}",
            next="check the path; an archived notebook can be compared with its folder's MANIFEST.sha256",
        ) from None
    return dict(document)


def write_notebook(path: Path, document: dict[str, Any], redactor: Redactor | None = None) -> None:
    """
    Put the notebook at path in one step, redacted: a reader sees the old or the new one, never half of one.

    Args:
        path: Where; its folder exists.
        document: The notebook, a dictionary or nbformat's node; left as it is, since the kernel runs what it says.
        redactor: For sources, outputs and papermill's parameters; None loads this machine's.

    Raises:
        RecordError: It could not be written.
    """
    write_atomic(path, _encode(_redact(document, redactor or load_redactor())))


def _redact(document: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """What people and engines said; the structure of the file is ours and stays."""
    cells = []
    for cell in document["cells"]:
        kept = {**cell, "source": _redact_texts(cell["source"], redactor)}
        kept["metadata"] = _redact_papermill(cell.get("metadata", {}), redactor)
        if "outputs" in cell:
            kept["outputs"] = [
                {key: _redact_texts(value, redactor) if key in _SPOKEN else value for key, value in output.items()}
                for output in cell["outputs"]
            ]
        cells.append(kept)
    return {**document, "metadata": _redact_papermill(document.get("metadata", {}), redactor), "cells": cells}


def _redact_papermill(metadata: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    return {key: redactor.value(value) if key == "papermill" else value for key, value in metadata.items()}


def _redact_texts(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return _redact_text(value, redactor)
    if isinstance(value, dict):
        return {key: _redact_texts(one, redactor) for key, one in value.items()}
    return [_redact_texts(one, redactor) for one in value] if isinstance(value, list) else value


@lru_cache(maxsize=4096)
def _redact_text(text: str, redactor: Redactor) -> str:
    """A notebook is saved twice a cell, and most of its texts are those of the save before."""
    return redactor.text(text)


def _encode(document: dict[str, Any]) -> bytes | str:
    """A notebook is saved twice a cell; orjson takes a tenth of the time, and refuses only lone surrogates."""
    try:
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def text_of(source: str | list[str]) -> str:
    """Source or output text as one string; on disk it may be a list of lines."""
    return source if isinstance(source, str) else "".join(source)


def tags_of(cell: dict[str, Any]) -> list[str]:
    """The tags of a cell; empty if it has none."""
    return list(cell.get("metadata", {}).get("tags", []))


def result_cell(document: dict[str, Any]) -> dict[str, Any] | None:
    """The cell tagged `result`, or else the last code cell; None if the notebook has no code."""
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    tagged = [cell for cell in code if RESULT_TAG in tags_of(cell)]
    found = tagged or code
    return found[-1] if found else None


def has_record(cell: dict[str, Any]) -> bool:
    """True if the cell's outputs hold a record: the mark that the stage was closed."""
    return any(RECORD_MIME in output.get("data", {}) for output in cell.get("outputs", []))


def embed_record(notebook_path: Path, record: dict[str, Any]) -> None:
    """
    Put the record into an executed notebook, into the outputs of its result cell; one that is there is replaced.

    Args:
        notebook_path: The executed notebook.
        record: The session's record, JSON values only.

    Raises:
        RecordError: The notebook cannot be read or written, or has no code cell.
    """
    document = read_notebook(notebook_path)
    cell = result_cell(document)
    if cell is None:
        raise RecordError(
            f"{notebook_path} has no cell that could hold a record",
            expected="a code cell tagged `result`",
            evidence=f"{len(document['cells'])} cells, none of them code",
            next="run a notebook of notebooks/, or keep record.json beside this one",
        )
    outputs = [output for output in cell["outputs"] if RECORD_MIME not in output.get("data", {})]
    data = {RECORD_MIME: record, "text/plain": ["The record of this session."]}
    outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    cell["outputs"] = outputs
    write_notebook(notebook_path, document)


def read_embedded_record(notebook_path: Path) -> dict[str, Any] | None:
    """
    The record inside an executed notebook, so that a lone .ipynb can be read back.

    Returns:
        The last one found, or None if there is none.

    Raises:
        RecordError: The notebook cannot be read.
    """
    for cell in reversed(read_notebook(notebook_path)["cells"]):
        for output in reversed(cell.get("outputs", [])):
            record = output.get("data", {}).get(RECORD_MIME)
            if isinstance(record, dict):
                return record
    return None
