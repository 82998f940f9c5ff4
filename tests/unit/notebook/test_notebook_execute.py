"""However a run ends, the executed notebook says so, and nothing is left behind."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from k3lib.errors import K3Error
from k3lib.notebook.document import BANNER_TAG, embed_record, read_embedded_record
from k3lib.notebook.execute import NotebookResult, execute_notebook
from k3lib.spec.vocabulary import SessionState

PENDING = "pending"


@pytest.fixture(autouse=True)
def short_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A temporary folder that no other run uses and whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


def run(notebook: Path, output: str = "out.ipynb", **options: Any) -> NotebookResult:
    """Run it beside itself, with trials = 2."""
    folder = notebook.parent
    environment = {"K3_WORD": "hi"}
    return execute_notebook(notebook, folder / output, {"trials": 2}, environment=environment, cwd=folder, **options)


def statuses(path: Path) -> dict[str, str]:
    """Cell id to papermill's status, banner cells apart."""
    cells = nbformat.read(path, as_version=4).cells
    nbformat.validate(nbformat.read(path, as_version=4))
    return {c.id: c.metadata.papermill.status for c in cells if BANNER_TAG not in c.metadata.get("tags", [])}


def errors(path: Path, cell_id: str) -> list[str]:
    """Names of the error outputs of a cell."""
    cell = next(c for c in nbformat.read(path, as_version=4).cells if c.id == cell_id)
    return [output.ename for output in cell.outputs if output.output_type == "error"]


def leftovers() -> tuple[set[Path], set[int]]:
    """Private folders and child processes that are there now."""
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    return set(Path(tempfile.gettempdir()).iterdir()), children


def test_a_healthy_run_closes_with_its_record_and_leaves_nothing(build, capfd) -> None:
    """Parameters, environment, progress and the record arrive; no process, no folder, no warning stays."""
    before, seen = leftovers(), []
    probe = "import os\nassert (os.environ['K3_WORD'], os.environ['K3_BATCH'], trials) == ('hi', '1', 2)"
    result = run(build(probe), on_cell=lambda *where: seen.append(where))
    assert (SessionState.CLOSED, None, None) == (result.state, result.reason, result.failed_cell)
    assert {"trials": 2} == read_embedded_record(result.output)
    assert [("30 · Does it start?", number, 4) for number in (1, 2, 3, 4)] == seen
    assert {"completed"} == set(statuses(result.output).values())
    assert before == leftovers()
    assert ("", "") == tuple(capfd.readouterr())


def test_a_dead_kernel_is_killed_and_later_cells_were_not_run(build) -> None:
    """The cell that was running is failed, with the signal; the record can still be put in."""
    before = leftovers()
    result = run(build("import os\nos.kill(os.getpid(), 9)", "1"))
    assert (SessionState.KILLED, "the kernel died: SIGKILL") == (result.state, result.reason)
    assert ("c0", "DeadKernel") == (result.failed_cell, result.error_name)
    states = statuses(result.output)
    assert ("failed", PENDING, PENDING) == (states["c0"], states["c1"], states["result"])
    assert ["DeadKernel"] == errors(result.output, "c0")
    banner = "**This notebook did not run to its end: killed, in code cell [3](#papermill-error-cell).** "
    assert banner + "the kernel died: SIGKILL" == nbformat.read(result.output, as_version=4).cells[0].source
    embed_record(result.output, {"state": "killed"})
    assert {"state": "killed"} == read_embedded_record(result.output)
    assert before == leftovers()


def test_a_cell_that_runs_too_long_is_interrupted_and_may_clean_up(build) -> None:
    """The limit is named, the cell's own clean-up ran, its traceback stays."""
    notebook = build("import time\ntry:\n    time.sleep(60)\nfinally:\n    open('cleaned', 'w').close()")
    result = run(notebook, cell_timeout_s=0.5)
    reason = "a cell did not end in time: cell_timeout_s = 0.5 s"
    assert (SessionState.TIMED_OUT, reason) == (result.state, result.reason)
    assert ["KeyboardInterrupt", "CellTimeout"] == errors(result.output, "c0")
    assert ("failed", PENDING) == (statuses(result.output)["c0"], statuses(result.output)["result"])
    assert (notebook.parent / "cleaned").exists()


def test_a_cell_that_will_not_stop_is_killed_and_the_reason_says_so(build, monkeypatch) -> None:
    """After the grace the kernel goes, whatever the cell does."""
    from k3lib.notebook import client

    monkeypatch.setattr(client, "GRACE_S", 1.0)
    before = leftovers()
    stubborn = "import time\nwhile True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        pass"
    result = run(build(stubborn), cell_timeout_s=0.3)
    assert SessionState.TIMED_OUT == result.state
    reason = "a cell did not end in time: cell_timeout_s = 0.3 s; the kernel was killed: it did not end within 1 s"
    assert reason == result.reason
    assert before == leftovers()


def test_an_exception_is_a_failure_that_keeps_its_traceback_once(build) -> None:
    """Name and message come back, and the output is the kernel's own."""
    result = run(build("raise ValueError('no <b>engine</b>')", "1"))
    assert SessionState.FAILED == result.state
    assert ("ValueError", "no <b>engine</b>") == (result.error_name, result.error_value)
    assert ["ValueError"] == errors(result.output, "c0")
    assert PENDING == statuses(result.output)["c1"]


@pytest.mark.parametrize(
    ("cells", "result_source", "reason"),
    [
        (["import sys\nsys.exit(0)"], "1", "the notebook ended without a record: a cell called sys.exit"),
        ([], "'not closed'", "the notebook ended without a record"),
        (["1"], None, "the notebook ended without a record"),
    ],
)
def test_a_run_without_a_record_failed(build, cells: list[str], result_source: str | None, reason: str) -> None:
    """sys.exit(0), a result cell that wrote nothing, and no result cell at all are no success."""
    result = run(build(*cells, result=result_source))
    assert (SessionState.FAILED, reason) == (result.state, result.reason)


def test_a_kernel_that_cannot_start_is_our_error_and_leaves_nothing(build) -> None:
    """The four lines name the kernel; every cell is still pending."""
    before, notebook = leftovers(), build()
    with pytest.raises(K3Error) as error:
        execute_notebook(notebook, notebook.with_name("out.ipynb"), {}, environment={"PYTHONHOME": "/x"}, cwd=Path("/"))
    assert "the notebook's kernel did not start" == error.value.what
    assert {PENDING} == set(statuses(notebook.with_name("out.ipynb")).values())
    assert before == leftovers()


def test_two_runs_differ_in_no_id_and_no_source(build) -> None:
    """The injected cell and the banner have fixed ids, so that a comparison shows only what was measured."""
    notebook = build("1/0")
    cells = [
        [(cell.id, cell.source) for cell in nbformat.read(run(notebook, name).output, as_version=4).cells]
        for name in ("a.ipynb", "b.ipynb")
    ]
    assert cells[0] == cells[1]
    expected = ["k3-stopped", "title", "parameters", "injected-parameters", "k3-stopped-here", "c0", "result"]
    assert expected == [cell_id for cell_id, _ in cells[0]]


def test_a_reader_never_sees_a_torn_notebook(build) -> None:
    """Every read while the run saves is whole JSON."""
    notebook = build(*["print('x' * 20_000)"] * 8)
    output, torn, reads, stop = notebook.parent / "out.ipynb", [], [0], threading.Event()

    def read_on() -> None:
        while not stop.is_set():
            if output.exists():
                reads[0] += 1
                try:
                    json.loads(output.read_bytes())
                except ValueError as problem:
                    torn.append(str(problem))

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        result = run(notebook)
    finally:
        stop.set()
        reader.join()
    assert SessionState.CLOSED == result.state
    assert [] == torn
    assert reads[0] > 50
