"""
Where in vLLM a failure stands: the frames of its traceback, from the outermost in.

Files and functions are those of the tracebacks of vLLM 0.27 to 0.33 in public reports (vllm#50147, vllm#51124,
vllm#56830); the line numbers only look like some: read names, not numbers. Triage reads a phase out of the names:
`create_weights` is loading, `profile_run` and `capture_model` are memory, `execute_model` is serving.
"""

from __future__ import annotations

from collections.abc import Sequence

_PACKAGES = "/usr/local/lib/python3.12/dist-packages"

Frame = tuple[str, int, str]

_WORKER: tuple[Frame, ...] = (("vllm/v1/executor/multiproc_executor.py", 931, "worker_main"),)
_WORKER_INIT: tuple[Frame, ...] = (*_WORKER, ("vllm/v1/executor/multiproc_executor.py", 695, "__init__"))
_WORKER_LOOP: tuple[Frame, ...] = (("vllm/v1/executor/multiproc_executor.py", 1012, "worker_busy_loop"),)
_FORWARD: tuple[Frame, ...] = (
    ("vllm/models/kimi_k3/nvidia/model.py", 1064, "forward"),
    ("vllm/model_executor/layers/fused_moe/layer.py", 1507, "forward"),
    ("vllm/model_executor/layers/quantization/mxfp4.py", 811, "apply"),
)
_EXECUTE: tuple[Frame, ...] = (
    *_WORKER_LOOP,
    ("vllm/v1/worker/gpu_worker.py", 1140, "execute_model"),
    ("vllm/v1/worker/gpu/model_runner.py", 1391, "execute_model"),
)
_CORE_START: tuple[Frame, ...] = (
    ("vllm/v1/engine/core.py", 1558, "run_engine_core"),
    ("vllm/v1/engine/core.py", 1268, "__init__"),
    ("vllm/v1/engine/core.py", 151, "__init__"),
)
_CORE_CACHES: tuple[Frame, ...] = (*_CORE_START, ("vllm/v1/engine/core.py", 341, "_initialize_kv_caches"))
_API: tuple[Frame, ...] = (
    ("vllm/entrypoints/cli/main.py", 120, "main"),
    ("vllm/entrypoints/cli/serve.py", 163, "cmd"),
    ("vllm/entrypoints/launchers/api_server/entry.py", 176, "run_server"),
)

STACKS: dict[str, tuple[Frame, ...]] = {
    "device_config": (
        *_API,
        ("vllm/engine/arg_utils.py", 2204, "create_engine_config"),
        ("vllm/config/device.py", 56, "__post_init__"),
    ),
    "init_device": (
        *_WORKER_INIT,
        ("vllm/v1/worker/gpu_worker.py", 298, "init_device"),
        ("torch/cuda/__init__.py", 478, "_lazy_init"),
    ),
    "request_memory": (
        *_WORKER_INIT,
        ("vllm/v1/worker/gpu_worker.py", 331, "init_device"),
        ("vllm/v1/worker/utils.py", 763, "request_memory"),
    ),
    "communicator": (
        *_WORKER_INIT,
        ("vllm/v1/worker/gpu_worker.py", 341, "init_device"),
        ("vllm/distributed/parallel_state.py", 2011, "initialize_model_parallel"),
        ("vllm/distributed/device_communicators/pynccl.py", 180, "__init__"),
        ("vllm/distributed/device_communicators/pynccl_wrapper.py", 464, "NCCL_CHECK"),
    ),
    "create_weights": (
        *_WORKER_INIT,
        ("vllm/v1/worker/gpu_worker.py", 611, "load_model"),
        ("vllm/v1/worker/gpu/model_runner.py", 402, "load_model"),
        ("vllm/model_executor/model_loader/__init__.py", 141, "get_model"),
        ("vllm/model_executor/model_loader/base_loader.py", 74, "load_model"),
        ("vllm/model_executor/model_loader/utils.py", 59, "initialize_model"),
        ("vllm/models/kimi_k3/nvidia/model.py", 447, "__init__"),
        ("vllm/model_executor/layers/fused_moe/layer.py", 598, "__init__"),
        ("vllm/model_executor/layers/quantization/mxfp4.py", 352, "create_weights"),
    ),
    "profile_run": (
        *_WORKER_LOOP,
        ("vllm/v1/worker/gpu_worker.py", 702, "determine_available_memory"),
        ("vllm/v1/worker/gpu/model_runner.py", 1088, "profile_run"),
        ("vllm/v1/worker/gpu/model_runner.py", 1023, "_dummy_run"),
        *_FORWARD,
    ),
    "capture_model": (
        *_WORKER_LOOP,
        ("vllm/v1/worker/gpu_worker.py", 958, "compile_or_warm_up_model"),
        ("vllm/v1/worker/gpu/model_runner.py", 1142, "capture_model"),
        ("vllm/v1/worker/gpu/cudagraph_utils.py", 311, "capture"),
        ("vllm/compilation/cuda_graph.py", 308, "__call__"),
    ),
    "execute_model": (*_EXECUTE, *_FORWARD),
    "linear_attention": (
        *_EXECUTE,
        ("vllm/models/kimi_k3/nvidia/model.py", 1064, "forward"),
        ("vllm/models/kimi_k3/nvidia/kda.py", 742, "forward"),
        ("vllm/model_executor/layers/mamba/ops/causal_conv1d.py", 640, "causal_conv1d_fn"),
    ),
    "core_executor": (
        *_CORE_START,
        ("vllm/v1/executor/multiproc_executor.py", 223, "_init_executor"),
        ("vllm/v1/executor/multiproc_executor.py", 891, "wait_for_ready"),
    ),
    "core_rpc": (
        *_CORE_CACHES,
        ("vllm/v1/executor/abstract.py", 131, "determine_available_memory"),
        ("vllm/v1/executor/multiproc_executor.py", 431, "get_response"),
    ),
    "core_cache": (*_CORE_CACHES, ("vllm/v1/core/kv_cache_planning.py", 77, "check_enough_kv_cache_memory")),
    "core_step": (
        ("vllm/v1/engine/core.py", 1575, "run_engine_core"),
        ("vllm/v1/engine/core.py", 1402, "run_busy_loop"),
        ("vllm/v1/engine/core.py", 521, "step_with_batch_queue"),
        ("vllm/v1/executor/multiproc_executor.py", 431, "get_response"),
    ),
    "output_handler": (
        ("vllm/v1/engine/async_llm.py", 861, "output_handler"),
        ("vllm/v1/engine/core_client.py", 1247, "get_output_async"),
    ),
    "api": _API,
    "api_bind": (*_API, ("vllm/entrypoints/launchers/launcher.py", 402, "create_server_socket")),
    "api_engine": (
        *_API,
        ("vllm/v1/engine/core_client.py", 701, "__init__"),
        ("vllm/v1/engine/utils.py", 1474, "wait_for_engine_startup"),
    ),
    "api_timeout": (*_API, ("vllm/v1/engine/core_client.py", 765, "__init__")),
}


def traceback(stack: str, error: str) -> str:
    """
    A Python traceback without source lines: file, line, function, then the error.

    Args:
        stack: A name in `STACKS`.
        error: Its last line.

    >>> print(traceback("output_handler", "EOFError").splitlines()[-2])
      File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core_client.py", line 1247, in get_output_async
    """
    return "\n".join(["Traceback (most recent call last):", *_places(STACKS[stack]), error])


def _places(frames: Sequence[Frame]) -> list[str]:
    return [f'  File "{_PACKAGES}/{path}", line {line}, in {function}' for path, line, function in frames]
