"""The state of every cell, kept in papermill's metadata and saved atomically at each change."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import nbformat
from papermill.engines import NotebookExecutionManager

from k3lib.notebook.document import BANNER_TAG, INJECTED_TAG, tags_of, write_notebook
from k3lib.notebook.outcome import Outcome
from k3lib.record.redactor import load_redactor
from k3lib.redact import Redactor
from k3lib.spec.vocabulary import SessionState

ABORTED: Final = "aborted"
"""Status of a cell that did not fail but was stopped, beside papermill's pending, running, completed, failed."""


class CellStates(NotebookExecutionManager):  # type: ignore[misc]  # papermill has no types
    """
    papermill's keeper of cell states, made honest.

    papermill 2.7.0 marks every cell completed after a dead kernel, a time-out or Ctrl-C, and writes in place,
    so that a reader sees torn files. Here a cell is `completed` only if it ended by itself, later cells stay
    `pending`, and each save is a rename.
    """

    @cached_property
    def _redactor(self) -> Redactor:
        """One for all saves of a run: texts that stay the same are redacted once."""
        return load_redactor()

    def start(self) -> None:
        """Reset all cells to pending and save: the file exists before the kernel does."""
        for cell in self.nb.cells:
            if INJECTED_TAG in tags_of(cell):
                cell["id"] = INJECTED_TAG  # papermill's is random, so that two runs would differ
        self.notebook_start()

    def save(self, **_: Any) -> None:
        """Save in one step; a reader never sees half a notebook."""
        if self.output_path:
            write_notebook(Path(self.output_path), self.nb, self._redactor)
        self.last_save_time = self.now()

    def stop_cell(self, index: int, outcome: Outcome) -> None:
        """
        Mark the cell that was running when the run ended early, in its metadata and as an error output.

        Args:
            index: Position of the cell.
            outcome: How the run ended; its error is appended unless the cell already shows it.
        """
        cell = self.nb.cells[index]
        interrupted = outcome.state is SessionState.INTERRUPTED
        cell.metadata.papermill.update(
            exception=True, status=ABORTED if interrupted else self.FAILED, reason=outcome.reason
        )
        if outcome.state is not SessionState.FAILED or not any(o.output_type == "error" for o in cell.outputs):
            cell.outputs.append(
                nbformat.v4.new_output(  # type: ignore[no-untyped-call]
                    "error",
                    ename=outcome.error_name or "Stopped",
                    evalue=outcome.error_value or "",
                    traceback=[f"{outcome.error_name or 'Stopped'}: {outcome.reason}"],
                )
            )
        self.cell_complete(cell, cell_index=index)

    def cell_complete(self, cell: Any, cell_index: int | None = None, **_: Any) -> None:
        """A cell ended: by itself if it is still marked as running, else with the mark it was given."""
        ended, seen = self.now(), cell.metadata.papermill
        seen.update(
            end_time=ended.isoformat(),
            duration=(ended - datetime.fromisoformat(seen["start_time"])).total_seconds(),
            status=self.COMPLETED if seen["status"] == self.RUNNING else seen["status"],
        )
        self.save()
        if self.pbar:
            self.pbar.update(1)

    def finish(self, outcome: Outcome) -> None:
        """
        Write how the run ended: metadata of the notebook, and a banner if it ended early.

        Args:
            outcome: How it ended.
        """
        self.end_time = self.now()
        self.nb.metadata.papermill.update(
            end_time=self.end_time.isoformat(),
            duration=(self.end_time - self.start_time).total_seconds(),
            exception=None if outcome.closed else True,
            state=str(outcome.state),
            reason=outcome.reason,
        )
        self.cleanup_pbar()
        if not outcome.closed:
            self._add_banner(outcome)
        self.save()

    def _add_banner(self, outcome: Outcome) -> None:
        """papermill's two cells: one on top, one with the anchor before the cell that was running."""
        place = "before its first cell"
        if outcome.cell_index is not None:
            number = sum(cell.cell_type == "code" for cell in self.nb.cells[: outcome.cell_index + 1])
            place = f"in code cell [{number}](#papermill-error-cell)"
            anchor = f'<span id="papermill-error-cell"></span>**The run stopped in the next cell ({outcome.state}).**'
            self.nb.cells.insert(outcome.cell_index, _banner_cell("k3-stopped-here", anchor))
        text = f"**This notebook did not run to its end: {outcome.state}, {place}.** {outcome.reason}"
        self.nb.cells.insert(0, _banner_cell("k3-stopped", text))


def _banner_cell(cell_id: str, text: str) -> Any:
    cell = nbformat.v4.new_markdown_cell(text, id=cell_id)  # type: ignore[no-untyped-call]
    cell.metadata["tags"] = [BANNER_TAG]
    return cell
