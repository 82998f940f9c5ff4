"""
How a dying engine reads: the root line on the rank or core that failed, then the lines that only repeat it.

The order is vLLM's own: Worker, EngineCore, API server; the last line of the log is never the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.memory import OutOfMemory

_PACKAGES = "/usr/local/lib/python3.12/dist-packages/vllm"
_CLI = "/usr/local/bin/vllm"
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."

Frame = tuple[str, int, str]

_WORKER_START: tuple[Frame, ...] = (
    ("v1/executor/multiproc_executor.py", 931, "worker_main"),
    ("v1/executor/multiproc_executor.py", 695, "__init__"),
    ("v1/worker/gpu_worker.py", 611, "load_model"),
    ("v1/worker/gpu/model_runner.py", 402, "load_model"),
    ("model_executor/model_loader/__init__.py", 141, "get_model"),
    ("model_executor/model_loader/base_loader.py", 74, "load_model"),
    ("model_executor/model_loader/utils.py", 59, "initialize_model"),
    ("models/kimi_k3/nvidia/model.py", 447, "__init__"),
    ("model_executor/layers/fused_moe/layer.py", 598, "__init__"),
    ("model_executor/layers/quantization/mxfp4.py", 352, "create_weights"),
)
_WORKER_EXECUTE: tuple[Frame, ...] = (
    ("v1/executor/multiproc_executor.py", 1012, "worker_busy_loop"),
    ("v1/worker/gpu_worker.py", 1140, "execute_model"),
    ("v1/worker/gpu/model_runner.py", 1391, "execute_model"),
    ("models/kimi_k3/nvidia/model.py", 1064, "forward"),
    ("model_executor/layers/fused_moe/layer.py", 1507, "forward"),
    ("model_executor/layers/quantization/mxfp4.py", 811, "apply"),
)
_CORE_START: tuple[Frame, ...] = (
    ("v1/engine/core.py", 1558, "run_engine_core"),
    ("v1/engine/core.py", 1268, "__init__"),
    ("v1/engine/core.py", 151, "__init__"),
)
_CORE_EXECUTOR: tuple[Frame, ...] = (
    *_CORE_START,
    ("v1/executor/multiproc_executor.py", 223, "_init_executor"),
    ("v1/executor/multiproc_executor.py", 891, "wait_for_ready"),
)
_CORE_CACHE: tuple[Frame, ...] = (
    *_CORE_START,
    ("v1/engine/core.py", 341, "_initialize_kv_caches"),
    ("v1/core/kv_cache_planning.py", 77, "check_enough_kv_cache_memory"),
)
_CORE_STEP: tuple[Frame, ...] = (
    ("v1/engine/core.py", 1575, "run_engine_core"),
    ("v1/engine/core.py", 1402, "run_busy_loop"),
    ("v1/engine/core.py", 521, "step_with_batch_queue"),
    ("v1/executor/multiproc_executor.py", 431, "get_response"),
)
_API: tuple[Frame, ...] = (
    ("entrypoints/cli/main.py", 120, "main"),
    ("entrypoints/cli/serve.py", 163, "cmd"),
    ("entrypoints/launchers/api_server/entry.py", 176, "run_server"),
)
_API_ENGINE: tuple[Frame, ...] = (
    *_API,
    ("v1/engine/core_client.py", 701, "__init__"),
    ("v1/engine/utils.py", 1474, "wait_for_engine_startup"),
)


@dataclass(eq=False)
class StartFailure(Exception):
    """
    The engine died before it was ready.

    Args:
        ranks: Allocations that failed, by rank; empty when the core itself refused.
        core: The core's own error, `ValueError: …`, or None when the workers failed.
        killed: The core was killed from outside and left no word.
    """

    ranks: tuple[OutOfMemory, ...] = ()
    core: str | None = None
    killed: bool = False


class RuntimeFailure(Exception):
    """The engine died while it served; what was in flight gets `DEAD`."""


def traceback(frames: Sequence[Frame], error: str) -> str:
    """A Python traceback without source lines: file, line, function, then the error."""
    places = [f'  File "{_PACKAGES}/{path}", line {line}, in {function}' for path, line, function in frames]
    return "\n".join(["Traceback (most recent call last):", *places, error])


def write_config_failure(journal: Journal, message: str) -> None:
    """A configuration that vLLM refuses, before any engine process exists."""
    error = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
        f"  Value error, {message} [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]"
    )
    journal.bare(traceback(_API, error))


def write_bind_failure(journal: Journal, error: OSError) -> None:
    """The port is taken."""
    journal.bare(
        traceback((*_API, ("entrypoints/launchers/launcher.py", 402, "create_server_socket")), f"OSError: {error}")
    )


def write_start_failure(journal: Journal, failure: StartFailure) -> None:
    """Worker, then core, then API server."""
    for oom in failure.ranks:
        text = "WorkerProc failed to start.\n" + traceback(_WORKER_START, f"torch.OutOfMemoryError: {oom.message}")
        journal.worker(oom.rank, "multiproc_executor.py:968", text, "ERROR")
    if failure.ranks:
        journal.engine(
            "multiproc_executor.py:492",
            f"[shutdown] Executor: waiting for worker exit count={len(journal.worker_names)}",
        )
    if not failure.killed:
        frames, error = (_CORE_CACHE, failure.core) if failure.core else (_CORE_EXECUTOR, _worker_start_error())
        journal.engine("core.py:1584", "EngineCore failed to start.\n" + traceback(frames, error), "ERROR")
        journal.bare("Process EngineCore:\n" + traceback(frames, error))
    lost = "{'EngineCore': -9}" if failure.killed else "{}"
    root = f"RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {lost}"
    journal.bare(traceback(_API_ENGINE, root))


def _worker_start_error() -> str:
    return (
        "Exception: WorkerProc initialization failed due to an exception in a background process. "
        "See stack trace for root cause."
    )


def write_execution_failure(journal: Journal, ranks: Sequence[OutOfMemory]) -> None:
    """Out of memory in a forward pass: every rank that failed, then the core, which is fatal."""
    for oom in ranks:
        text = "WorkerProc hit an exception.\n" + traceback(_WORKER_EXECUTE, f"torch.OutOfMemoryError: {oom.message}")
        journal.worker(oom.rank, "multiproc_executor.py:1017", text, "ERROR")
    advice = "please check the stack trace above for the root cause"
    error = f"RuntimeError: Worker failed with error '{ranks[0].message}', {advice}"
    journal.engine("core.py:1586", "EngineCore encountered a fatal error.\n" + traceback(_CORE_STEP, error), "ERROR")


def write_engine_lost(journal: Journal, *, killed: bool) -> None:
    """What the API server prints when its engine is gone; it then ends with exit code 0."""
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
    frames: tuple[Frame, ...] = (
        ("v1/engine/async_llm.py", 861, "output_handler"),
        ("v1/engine/core_client.py", 1247, "get_output_async"),
    )
    text = "AsyncLLM output_handler failed.\n" + traceback(frames, f"vllm.v1.engine.exceptions.EngineDeadError: {DEAD}")
    journal.api("async_llm.py:918", text, "ERROR")


def write_shutdown(journal: Journal) -> None:
    """An orderly stop, from the signal to the closed HTTP server."""
    journal.api("launcher.py:256", "[shutdown] API server: shutdown triggered")
    journal.api("launcher.py:272", "[shutdown] API server: stopping engine client mode=abort timeout=0s")
    journal.api("core_client.py:781", "[shutdown] MPClient: start timeout=0s")
    journal.api("utils.py:633", "[shutdown] Process manager: send sigterm to process EngineCore")
    journal.engine("core.py:1530", "[shutdown] EngineCore: trigger received signal=SIGTERM")
    journal.engine("core.py:1711", "[shutdown] EngineCore: start mode=abort timeout=0s")
    journal.engine("core.py:1573", "[shutdown] EngineCore: exiting busy loop")
    journal.engine("multiproc_executor.py:499", "[shutdown] Executor: all workers exited gracefully")
    journal.api("core_client.py:788", "[shutdown] MPClient: complete")
    journal.api("launcher.py:281", "[shutdown] API server: engine client stopped")
    journal.api("launcher.py:284", "[shutdown] API server: signalling HTTP server shutdown")
    journal.api("launcher.py:306", "[shutdown] API server: shutting down FastAPI HTTP server")
