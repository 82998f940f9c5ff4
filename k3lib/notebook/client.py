"""Runs the cells of a notebook in a kernel, and ends in an outcome whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from jupyter_core.utils import run_sync
from nbclient.exceptions import CellExecutionError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient

from k3lib.errors import K3Error
from k3lib.notebook.kernel_process import KernelProcess
from k3lib.notebook.outcome import CLOSED, Outcome
from k3lib.notebook.states import CellStates
from k3lib.spec.vocabulary import SessionState

GRACE_S: Final = 15.0
"""How long an interrupted cell may take for its own clean-up, seconds."""


class K3Client(PapermillNotebookClient):  # type: ignore[misc]  # papermill has no types
    """
    papermill's client with our own loop over the cells.

    Args:
        states: Keeper of the cell states.
        kernel: The kernel, started.
        cell_timeout_s: The longest that one cell may run, seconds; no limit if None.
        on_cell: Called at the start of each code cell with the heading it stands under, its number from 1,
            and the number of code cells.
        options: nbclient's and papermill's own options.
    """

    def __init__(
        self,
        states: CellStates,
        kernel: KernelProcess,
        *,
        cell_timeout_s: float | None = None,
        on_cell: Callable[[str, int, int], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(states, km=kernel.manager, iopub_timeout=30, record_timing=False, **options)
        self.states, self.kernel = states, kernel
        self.cell_timeout_s, self.on_cell = cell_timeout_s, on_cell
        self.work_s = 0.0
        self.signals: list[signal.Signals] = []

    async def async_run(self) -> Outcome:
        """Run the cells in order until one ends the run, then shut the kernel down."""
        self.reset_execution_trackers()
        self._stop, self._hurry, self._began = asyncio.Event(), asyncio.Event(), asyncio.Event()
        with _signal_handlers(self._on_signal):
            async with self._connected():
                outcome = await self._run_cells()
                if outcome.closed:  # all is on disk: a kernel full of drawing libraries need not unload them one by one
                    self.shutdown_kernel = "immediate"
                return outcome

    run = run_sync(async_run)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        """The client's channels are open inside; leaving shuts the kernel down in its own time."""
        try:
            await self.async_start_new_kernel_client()
        except RuntimeError as problem:
            raise K3Error(
                "the notebook's kernel did not start",
                expected=f"`{sys.executable} -m ipykernel` answers within {self.startup_timeout} s",
                evidence=str(problem),
                next="see what the kernel printed above, and whether memory or disk is full",
            ) from None
        try:
            yield
        finally:
            if self.km is not None:
                await self._async_cleanup_kernel()

    async def _run_cells(self) -> Outcome:
        code = [index for index, cell in enumerate(self.nb.cells) if cell.cell_type == "code"]
        heading = ""
        for index, cell in enumerate(self.nb.cells):
            if self._stop.is_set():
                return self._interrupted(index)
            if cell.cell_type != "code":
                heading = _heading(cell.source) or heading
                cell.metadata.papermill["status"] = self.states.COMPLETED
                continue
            if self.on_cell:
                self.on_cell(heading, code.index(index) + 1, len(code))
            outcome = await self._run_cell(cell, index)
            if not outcome.closed:
                self.states.stop_cell(index, outcome)
                return outcome
            self.states.cell_complete(cell, cell_index=index)
        self.set_widgets_metadata()
        return CLOSED

    async def _run_cell(self, cell: Any, index: int) -> Outcome:
        self.states.cell_start(cell, cell_index=index)
        self._began.clear()
        started = time.monotonic()
        running = asyncio.ensure_future(self.async_execute_cell(cell, index))
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({running, stopped}, timeout=self.cell_timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return await self._ended(running, index)
            outcome = self._interrupted(index) if stopped.done() else self._timed_out(index)
            return await self._interrupt(running, outcome)
        finally:
            stopped.cancel()
            self.work_s += time.monotonic() - started

    async def _ended(self, running: asyncio.Future[Any], index: int) -> Outcome:
        where = {"cell_index": index, "cell_id": self.nb.cells[index].get("id")}
        try:
            running.result()
        except CellExecutionError as error:
            reason = f"{error.ename} in a cell"
            if error.ename == "SystemExit":
                reason = "the notebook ended without a record: a cell called sys.exit"
            return Outcome(
                SessionState.FAILED,
                reason,
                **where,
                error_name=error.ename,
                error_value=error.evalue,
                traceback=tuple(str(error.traceback).splitlines()),
            )
        except DeadKernelError:
            how = await self.kernel.how_it_ended()
            return Outcome(
                SessionState.KILLED, f"the kernel died: {how}", **where, error_name="DeadKernel", error_value=how
            )
        return CLOSED

    async def _interrupt(self, running: asyncio.Future[Any], outcome: Outcome) -> Outcome:
        """Interrupt the kernel, give the cell its time to clean up, then kill; a second signal kills at once."""
        with contextlib.suppress(TimeoutError):  # before the cell has begun, ipykernel ignores an interrupt
            await asyncio.wait_for(self._began.wait(), timeout=2)
        await self.km.interrupt_kernel()
        hurried = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({running, hurried}, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if running.done():
            running.exception()
            return outcome
        running.cancel()
        await asyncio.wait({running})
        running.exception()
        await self.km.shutdown_kernel(now=True)
        asked_twice = len(self.signals) > 1
        why = "a second signal asked for it" if asked_twice else f"it did not end within {GRACE_S:.0f} s"
        return Outcome(**{**vars(outcome), "reason": f"{outcome.reason}; the kernel was killed: {why}"})

    def _interrupted(self, index: int) -> Outcome:
        name = self.signals[0].name
        word = "Ctrl-C" if name == "SIGINT" else name
        return Outcome(
            SessionState.INTERRUPTED,
            f"stopped by {word}",
            cell_index=index,
            cell_id=self.nb.cells[index].get("id"),
            error_name="Interrupted",
            error_value=name,
        )

    def _timed_out(self, index: int) -> Outcome:
        limit = f"cell_timeout_s = {self.cell_timeout_s:g} s"
        return Outcome(
            SessionState.TIMED_OUT,
            f"a cell did not end in time: {limit}",
            cell_index=index,
            cell_id=self.nb.cells[index].get("id"),
            error_name="CellTimeout",
            error_value=limit,
        )

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self.signals.append(number)
        self._stop.set()

    def process_message(self, msg: dict[str, Any], *where: Any) -> Any:
        """A message of the running cell; the first says that it has begun."""
        if msg["msg_type"] == "execute_input":
            self._began.set()
        return super().process_message(msg, *where)


@contextlib.contextmanager
def _signal_handlers(handler: Callable[[signal.Signals], None]) -> Any:
    """SIGINT and SIGTERM go to the handler; outside the main thread, where Python forbids it, nothing changes."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            loop.add_signal_handler(number, handler, number)
    except (RuntimeError, ValueError):
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def _heading(markdown: str) -> str | None:
    """The last heading of a markdown cell, without its marks."""
    lines = [line.lstrip("#").strip() for line in markdown.splitlines() if line.startswith("#")]
    return lines[-1] if lines else None
