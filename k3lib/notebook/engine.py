"""
The papermill engine `k3`, registered as an entry point.

papermill loads all engines while it is itself half imported, so this module imports nothing of papermill at
its top; what an engine must have is three class methods (papermill 2.7.0, engines.py).
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k3lib.notebook.document import RESULT_TAG, has_record, result_cell, tags_of
from k3lib.notebook.outcome import CLOSED, Outcome
from k3lib.spec.vocabulary import SessionState

if TYPE_CHECKING:
    from k3lib.notebook.kernel_process import KernelProcess


class K3Engine:
    """
    Runs a notebook with honest cell states, atomic saves and a kernel that ends with its runner.

    `papermill --engine k3 in.ipynb out.ipynb` uses it, and so does `k3 run`.
    """

    @classmethod
    def nb_kernel_name(cls, nb: Any, name: str | None = None) -> str:
        """The kernel is always this Python; papermill asks so that it can translate parameters."""
        return name or "python3"

    @classmethod
    def nb_language(cls, nb: Any, language: str | None = None) -> str:
        """Always Python."""
        return language or "python"

    @classmethod
    def execute_notebook(
        cls,
        nb: Any,
        kernel_name: str,
        output_path: str | None = None,
        progress_bar: bool | dict[str, Any] = True,
        log_output: bool = False,
        autosave_cell_every: int = 30,
        **options: Any,
    ) -> Any:
        """
        What papermill calls.

        Args:
            nb: The notebook, parameters already injected.
            kernel_name: Ignored: the kernel is the Python that runs us.
            output_path: Where to save; not saved if None.
            progress_bar: Whether to draw papermill's bar.
            log_output: Whether to log the cells' output.
            autosave_cell_every: Seconds between saves while a cell prints; 0 is never.
            options: papermill's own: execution_timeout, start_timeout, stdout_file, stderr_file.

        Returns:
            The executed notebook.

        Raises:
            PapermillExecutionError: The notebook did not run to its end; it is saved, with a banner.
        """
        from papermill.exceptions import PapermillExecutionError

        from k3lib.notebook.kernel_process import KernelProcess

        timeout = options.get("execution_timeout")
        with KernelProcess({}) as kernel:
            outcome, _ = cls.run(
                nb,
                Path(output_path) if output_path else None,
                kernel,
                cell_timeout_s=float(timeout) if timeout else None,
                states={
                    "progress_bar": progress_bar,
                    "log_output": log_output,
                    "autosave_cell_every": autosave_cell_every,
                },
                client={
                    "startup_timeout": options.get("start_timeout", 60),
                    "log_output": log_output,
                    "stdout_file": options.get("stdout_file"),
                    "stderr_file": options.get("stderr_file"),
                },
            )
        if outcome.closed:
            return nb
        index = outcome.cell_index or 0
        raise PapermillExecutionError(
            cell_index=index,
            exec_count=nb.cells[index].get("execution_count"),
            source=nb.cells[index].source,
            ename=outcome.error_name,
            evalue=outcome.error_value,
            traceback=list(outcome.traceback) or [str(outcome.reason)],
        )

    @classmethod
    def run(
        cls,
        nb: Any,
        output: Path | None,
        kernel: KernelProcess,
        *,
        cell_timeout_s: float | None = None,
        on_cell: Callable[[str, int, int], None] | None = None,
        require_record: bool = False,
        states: dict[str, Any] | None = None,
        client: dict[str, Any] | None = None,
    ) -> tuple[Outcome, float]:
        """
        Run the notebook and save it as it goes.

        Args:
            nb: The notebook as nbformat's node, with papermill's metadata.
            output: Where to save; not saved if None.
            kernel: The kernel, started.
            cell_timeout_s: The longest that one cell may run, seconds; no limit if None.
            on_cell: Called with heading, number and count at the start of each code cell.
            require_record: Demand a record even of a notebook without a cell tagged `result`.
            states: Options of the keeper of cell states.
            client: Options of the client.

        Returns:
            How it ended, and the seconds that the cells themselves took.
        """
        from k3lib.notebook.client import K3Client
        from k3lib.notebook.states import CellStates

        keeper = CellStates(nb, output_path=str(output) if output else None, **(states or {}))
        keeper.start()
        runner = K3Client(
            keeper,
            kernel,
            cell_timeout_s=cell_timeout_s,
            on_cell=on_cell,
            **(client or {}),
        )
        outcome = Outcome(SessionState.FAILED, "the runner broke; the cell states show how far it got")
        try:
            outcome = runner.run()
            if outcome.closed:
                outcome = cls._demand_record(keeper, always=require_record)
        finally:
            keeper.finish(outcome)
        if outcome.closed and runner.signals:  # it came after the last cell: the notebook is whole, the wish stands
            signal.raise_signal(runner.signals[0])
        return outcome, runner.work_s

    @classmethod
    def _demand_record(cls, keeper: Any, always: bool) -> Outcome:
        """A notebook that has a result cell is closed only if that cell wrote the record."""
        cell = result_cell(keeper.nb)
        if cell is None or has_record(cell) or not (always or RESULT_TAG in tags_of(cell)):
            return CLOSED
        index = keeper.nb.cells.index(cell)
        outcome = Outcome(
            SessionState.FAILED,
            "the notebook ended without a record",
            cell_index=index,
            cell_id=cell.get("id"),
            error_name="NoRecord",
            error_value="stage.close() wrote nothing into the last code cell",
        )
        keeper.stop_cell(index, outcome)
        return outcome
