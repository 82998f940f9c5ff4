"""
How a dying engine reads: the root line on the rank or core that failed, then the lines that only repeat it.

The order is vLLM's own: Worker, EngineCore, API server; the last line of the log is never the cause.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from k3lib.knowledge.capacity import GIB
from k3lib.knowledge.faults import Fault
from k3lib.rehearsal.config import EngineConfig
from k3lib.rehearsal.frames import traceback
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.memory import MemoryPlan, OutOfMemory

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_INIT_FAILED = (
    "Exception: WorkerProc initialization failed due to an exception in a background process. "
    "See stack trace for root cause."
)


@dataclass(frozen=True)
class RankError:
    """
    What one rank failed of.

    Args:
        rank: Which.
        stack: Name of its frames.
        error: Last line of its traceback.
        before: Lines that a library printed ahead of it.
    """

    rank: int
    stack: str
    error: str
    before: tuple[str, ...] = ()


@dataclass(eq=False)
class StartFailure(Exception):
    """
    The engine died before it was ready.

    Args:
        ranks: What the ranks failed of; empty when the core itself refused or a worker left no word.
        served: Whether the ranks had been asked something by the core (profiling, capture) instead of coming up.
        core: The core's own error, `ValueError: …`, or None when the workers failed.
        lost_rank: A worker that was killed, or None.
        killed: The core was killed from outside and left no word.
        waited_s: The front end's patience, once it ended, seconds.
    """

    ranks: tuple[RankError, ...] = ()
    served: bool = False
    core: str | None = None
    lost_rank: int | None = None
    killed: bool = False
    waited_s: float | None = None


@dataclass(eq=False)
class RuntimeFailure(Exception):
    """
    The engine died while it served; what was in flight gets `DEAD`.

    Args:
        ranks: What the ranks failed of, the first one first.
        lost_rank: A worker that was killed, or None.
        core: The core's own error, where no rank says anything.
    """

    ranks: tuple[RankError, ...] = ()
    lost_rank: int | None = None
    core: str = "RuntimeError: Executor failed."


def out_of_memory(stack: str, failures: Iterable[OutOfMemory]) -> tuple[RankError, ...]:
    """Allocations that failed, as the ranks say it."""
    return tuple(RankError(oom.rank, stack, f"torch.OutOfMemoryError: {oom.message}") for oom in failures)


def occupied(config: EngineConfig, plan: MemoryPlan, ranks: Iterable[int]) -> tuple[RankError, ...]:
    """vLLM 0.33.0 v1/worker/utils.py:763: less free than utilisation asks for."""
    wanted = f"({config.utilization}, {_gib(plan.requested)} GiB)"
    return tuple(
        RankError(
            rank,
            "request_memory",
            f"ValueError: Free memory on device cuda:{rank} ({_gib(plan.free_on(rank))}/{_gib(plan.total)} GiB) on "
            f"startup is less than desired GPU memory utilization {wanted}. Decrease GPU memory utilization or reduce "
            "GPU memory used by other processes.",
        )
        for rank in ranks
    )


def strike(fault: Fault, plan: MemoryPlan, seed: int) -> tuple[RankError, ...]:
    """
    A fault as the ranks say it.

    Args:
        fault: What strikes.
        plan: Memory of a rank, for what fails after it.
        seed: Chooses the rank where only one is struck.
    """
    struck = [seed % plan.ranks] if fault.ranks == "one" else list(range(plan.ranks))
    before = tuple(line.format(host=socket.gethostname()) for line in fault.before)
    errors = [RankError(rank, fault.stack, fault.error, before) for rank in struck]
    if fault.after:
        free, total = _gib(plan.free_while_serving), _gib(plan.total)
        errors += [
            RankError(rank, "execute_model", fault.after.format(rank=rank, total_gib=total, free_gib=free))
            for rank in range(plan.ranks)
            if rank not in struck
        ]
    return tuple(errors)


def _gib(size: float) -> float:
    return round(size / GIB, 2)


def write_platform_failure(journal: Journal, fault: Fault) -> None:
    """No platform was found: vLLM ends while it builds its arguments, before banner and processes."""
    for line in fault.before:
        level, where, text = line.split("|")
        journal.early(where, text, level)
    journal.bare(traceback(fault.stack, fault.error))


def write_config_failure(journal: Journal, message: str) -> None:
    """A configuration that vLLM refuses, before any engine process exists."""
    error = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
        f"  Value error, {message} [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]"
    )
    journal.bare(traceback("api", error))


def write_bind_failure(journal: Journal, error: OSError) -> None:
    """The port is taken."""
    journal.bare(traceback("api_bind", f"OSError: {error}"))


def write_start_failure(journal: Journal, failure: StartFailure) -> None:
    """Worker, then core, then API server."""
    if failure.waited_s is not None:
        journal.bare(traceback("api_timeout", _timed_out(failure.waited_s)))
        return
    _write_ranks(journal, failure.ranks, _head(failure))
    if failure.ranks and not failure.served:
        workers = len(journal.worker_names)
        journal.engine("multiproc_executor.py:492", f"[shutdown] Executor: waiting for worker exit count={workers}")
    if not failure.killed:
        text = _core_traceback(failure)
        journal.engine("core.py:1584", "EngineCore failed to start.\n" + text, "ERROR")
        journal.bare("Process EngineCore:\n" + text)
    lost = "{'EngineCore': -9}" if failure.killed else "{}"
    root = f"RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {lost}"
    journal.bare(traceback("api_engine", root))


def write_node_failure(journal: Journal, failure: StartFailure) -> None:
    """What a headless node says of its own ranks; it has no front end that would repeat it."""
    _write_ranks(journal, failure.ranks, _head(failure))
    journal.engine("core.py:1584", "EngineCore failed to start.\n" + _core_traceback(failure), "ERROR")


def write_node_shutdown(journal: Journal) -> None:
    """The end of a headless node, by a signal or because its head is gone."""
    journal.engine("core.py:1573", "[shutdown] EngineCore: exiting busy loop")
    journal.api("multiproc_executor.py:499", "[shutdown] Executor: all workers exited gracefully")


def _head(failure: StartFailure) -> str:
    return "WorkerProc hit an exception." if failure.served else "WorkerProc failed to start."


def _core_traceback(failure: StartFailure) -> str:
    if failure.core:
        return traceback("core_cache", failure.core)
    if failure.served:
        return traceback("core_rpc", _worker_failed(failure.ranks))
    return traceback("core_executor", _INIT_FAILED)


def _timed_out(waited_s: float) -> str:
    """vLLM 0.33.0 v1/engine/core_client.py:765."""
    return (
        "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight "
        f"loading for large models. Waited {waited_s:g}s (configured by VLLM_ENGINE_READY_TIMEOUT_S). To increase the "
        "timeout, set the environment variable: VLLM_ENGINE_READY_TIMEOUT_S=<seconds>"
    )


def _write_ranks(journal: Journal, ranks: Sequence[RankError], head: str) -> None:
    for failed in ranks:
        for line in failed.before:
            journal.bare(line)
        text = f"{head}\n{traceback(failed.stack, failed.error)}"
        journal.worker(failed.rank, "multiproc_executor.py:1017", text, "ERROR")


def _worker_failed(ranks: Sequence[RankError]) -> str:
    message = ranks[0].error.partition(": ")[2]
    return f"RuntimeError: Worker failed with error '{message}', please check the stack trace above for the root cause"


def write_execution_failure(journal: Journal, failure: RuntimeFailure) -> None:
    """A forward pass failed: every rank that says so, then the core, which is fatal."""
    _write_ranks(journal, failure.ranks, "WorkerProc hit an exception.")
    if failure.lost_rank is not None:
        name = f"VllmWorker-{failure.lost_rank}"
        text = f"Worker proc {name} died unexpectedly (exit code: -9), shutting down executor."
        journal.engine("multiproc_executor.py:381", text, "ERROR")
    error = _worker_failed(failure.ranks) if failure.ranks else failure.core
    text = "EngineCore encountered a fatal error.\n" + traceback("core_step", error)
    journal.engine("core.py:1586", text, "ERROR")


def write_engine_lost(journal: Journal, *, killed: bool) -> None:
    """
    What the API server prints when its engine is gone; it then ends with exit code 0.

    Source: vLLM 0.33.0 v1/engine/core_client.py; vLLM rust/src/engine-core-client/src/transport.rs.
    """
    if journal.rust:
        return journal.front("transport.rs:506", "received ENGINE_CORE_DEAD sentinel from engine", "WARNING")
    if killed:
        journal.api(
            "core_client.py:829", "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", "WARNING"
        )
    for line, text in (
        (781, "start timeout=default"),
        (783, "stopping engine manager"),
        (785, "engine manager stopped"),
        (786, "cleaning up background resources"),
        (788, "complete"),
    ):
        journal.api(f"core_client.py:{line}", f"[shutdown] MPClient: {text}")
    dead = traceback("output_handler", f"vllm.v1.engine.exceptions.EngineDeadError: {DEAD}")
    journal.api("async_llm.py:918", "AsyncLLM output_handler failed.\n" + dead, "ERROR")


def write_shutdown(journal: Journal) -> None:
    """An orderly stop, from the signal to the closed HTTP server; the Rust front end ends without a word."""
    if not journal.rust:
        journal.api("launcher.py:256", "[shutdown] API server: shutdown triggered")
        journal.api("launcher.py:272", "[shutdown] API server: stopping engine client mode=abort timeout=0s")
        journal.api("core_client.py:781", "[shutdown] MPClient: start timeout=0s")
    journal.api("utils.py:633", "[shutdown] Process manager: send sigterm to process EngineCore")
    journal.engine("core.py:1530", "[shutdown] EngineCore: trigger received signal=SIGTERM")
    journal.engine("core.py:1711", "[shutdown] EngineCore: start mode=abort timeout=0s")
    journal.engine("core.py:1573", "[shutdown] EngineCore: exiting busy loop")
    journal.engine("multiproc_executor.py:499", "[shutdown] Executor: all workers exited gracefully")
    if not journal.rust:
        journal.api("core_client.py:788", "[shutdown] MPClient: complete")
        journal.api("launcher.py:281", "[shutdown] API server: engine client stopped")
        journal.api("launcher.py:284", "[shutdown] API server: signalling HTTP server shutdown")
        journal.api("launcher.py:306", "[shutdown] API server: shutting down FastAPI HTTP server")
