"""Executes one notebook in batch and says how it ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3lib.notebook.engine import K3Engine
from k3lib.notebook.parameters import check_names, read_parameters
from k3lib.notebook.stack import quick_imports
from k3lib.spec.vocabulary import SessionState


@dataclass(frozen=True)
class NotebookResult:
    """
    One execution of a notebook, up to its end.

    Args:
        output: The executed notebook; it is there however the run ended.
        state: CLOSED, FAILED, TIMED_OUT, INTERRUPTED or KILLED.
        reason: One line for a reader; None when closed.
        failed_cell: Id of the cell that was running, or None.
        failed_index: Its position among all cells as executed, from 0, or None.
        error_name: Name of the exception, or None.
        error_value: Its message, or None.
        work_s: What the cells themselves took, seconds.
        fixed_s: Everything else: imports, kernel start and end, saves, seconds.
    """

    output: Path
    state: SessionState
    reason: str | None
    failed_cell: str | None
    failed_index: int | None
    error_name: str | None
    error_value: str | None
    work_s: float
    fixed_s: float


def execute_notebook(
    source: Path,
    output: Path,
    parameters: dict[str, Any],
    *,
    environment: dict[str, str],
    cwd: Path,
    cell_timeout_s: float | None = None,
    on_cell: Callable[[str, int, int], None] | None = None,
) -> NotebookResult:
    """
    Run a notebook with these parameters in a kernel of its own, which is gone afterwards.

    Ctrl-C and SIGTERM interrupt the running cell, leave it 15 s for its own clean-up, and come back as
    INTERRUPTED; the caller decides whether to re-raise. In the second before the first cell, while nothing is
    running yet, Ctrl-C is a KeyboardInterrupt.

    Args:
        source: The notebook as committed.
        output: Where the executed one goes; saved atomically from before the kernel starts.
        parameters: Values by name; types are the caller's to check.
        environment: Variables for the kernel, on top of ours. It also gets K3_BATCH=1.
        cwd: The kernel's working directory.
        cell_timeout_s: The longest that one cell may run, seconds; no limit if None.
        on_cell: Called at the start of each code cell with the heading it stands under, its number from 1,
            and the number of code cells.

    Returns:
        How it ended. A cell that raises is a result, not an exception.

    Raises:
        SpecError: A parameter that the notebook does not have; no kernel was started.
        RecordError: The notebook cannot be read, or the output cannot be written.
    """
    started = time.monotonic()
    check_names(parameters, read_parameters(source), where=source.name)
    from k3lib.notebook.kernel_process import KernelProcess

    with KernelProcess(environment, cwd) as kernel:  # boots while the next line imports: 0.7 s of each
        notebook = _prepare(source, output, parameters)
        outcome, work_s = K3Engine.run(
            notebook,
            output,
            kernel,
            cell_timeout_s=cell_timeout_s,
            on_cell=on_cell,
            require_record=True,
            states={"progress_bar": False},
        )
    return NotebookResult(
        output=output,
        state=outcome.state,
        reason=outcome.reason,
        failed_cell=outcome.cell_id,
        failed_index=outcome.cell_index,
        error_name=outcome.error_name,
        error_value=outcome.error_value,
        work_s=work_s,
        fixed_s=time.monotonic() - started - work_s,
    )


def _prepare(source: Path, output: Path, parameters: dict[str, Any]) -> Any:
    """The notebook with its values injected, as papermill does it, and with file names instead of paths."""
    with quick_imports():
        from papermill.execute import prepare_notebook_metadata, remove_error_markers
        from papermill.iorw import load_notebook_node
        from papermill.parameterize import parameterize_notebook
    logging.getLogger("papermill").setLevel(logging.ERROR)  # its news are ours to tell
    notebook = load_notebook_node(str(source))
    if parameters:
        notebook = parameterize_notebook(notebook, parameters, kernel_name="python3", language="python")
    return remove_error_markers(prepare_notebook_metadata(notebook, source.name, output.name, report_mode=False))
