"""A record travels inside its notebook and comes back unchanged."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k3lib.errors import RecordError
from k3lib.notebook.document import embed_record, read_embedded_record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(record=st.dictionaries(st.text(), JSON, max_size=4))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_record_put_in_is_the_record_read_out(build, record: dict[str, object]) -> None:
    """Write then read is the same, for any JSON and any number of times; the notebook stays valid."""
    notebook = build()
    for value in ({"older": True}, record):
        embed_record(notebook, value)
    assert record == read_embedded_record(notebook)
    nbformat.validate(nbformat.read(notebook, as_version=4))


def test_a_notebook_that_never_closed_has_no_record(build) -> None:
    """Absent is None."""
    assert read_embedded_record(build()) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"nbformat": 3, "worksheets": []}', '{"nbformat": 4}'])
def test_what_is_no_notebook_is_refused(tmp_path: Path, content: str) -> None:
    """A torn, foreign or old file is an error that names it."""
    broken = tmp_path / "broken.ipynb"
    broken.write_text(content)
    with pytest.raises(RecordError, match=r"broken\.ipynb is not a notebook that can be read"):
        read_embedded_record(broken)


def test_a_notebook_without_code_cannot_hold_a_record(tmp_path: Path) -> None:
    """There is no cell to put it in, and the file stays as it was."""
    path = tmp_path / "prose.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# x", id="x")]), path)
    before = path.read_bytes()
    with pytest.raises(RecordError, match="no cell that could hold a record"):
        embed_record(path, {})
    assert before == path.read_bytes()
