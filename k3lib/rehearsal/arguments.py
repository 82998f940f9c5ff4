"""
The command line of vLLM, as far as the rehearsal knows it, parsed as vLLM parses it: 0.33.0's, and what other releases
have or lack against it.

    python -m k3lib.rehearsal serve moonshotai/Kimi-K3 --tensor-parallel-size 8 --port 8000

argparse accepts unambiguous abbreviations and vLLM turns underscores into dashes; both are kept, because both have
hidden a typing error from somebody. An unknown flag ends in the usage text and exit code 2; an unknown `VLLM_`
variable only warns.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from k3lib.knowledge.profiles import Profile, find_profile

_USAGE = """vllm [-h] [-v]
            {chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot}
            ..."""


def _size(text: str) -> int:
    """`131072`, `128k` (decimal), `128K` (binary): vLLM's human-readable integers."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"Cannot convert {text!r} to an integer.")
    factor = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]]
    return int(float(match[1]) * factor)


def _length(text: str) -> int:
    return -1 if text in {"auto", "-1"} else _size(text)


def _interval(text: str) -> int | None:
    return None if text in {"None", "none", ""} else int(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to JSON: {error}") from error


@dataclass(frozen=True)
class Flag:
    """
    One flag of `vllm serve`.

    Args:
        name: Without dashes; the dashes-to-underscores form is the key in `non-default args`.
        read: How its text becomes a value; None is a switch with a `--no-` twin.
        default: Value when absent.
        short: Other spellings.
        choices: Allowed values.
        several: Takes one or more values.
    """

    name: str
    read: Callable[[str], Any] | None = str
    default: Any = None
    short: tuple[str, ...] = ()
    choices: tuple[Any, ...] | None = None
    several: bool = False


_PARSERS = ("hermes", "kimi_k2", "kimi_k3", "llama3_json", "mistral", "qwen3_xml")

FLAGS: tuple[Flag, ...] = (
    Flag("enable-prompt-tokens-details", None, False),
    Flag("enable-auto-tool-choice", None, False),
    Flag("tool-call-parser", choices=_PARSERS),
    Flag("reasoning-parser", default=""),
    Flag("chat-template"),
    Flag("api-key", several=True),
    Flag("root-path"),
    Flag("uvicorn-log-level", default="info"),
    Flag("disable-uvicorn-access-log", None, False),
    Flag("enable-log-requests", None, False),
    Flag("host"),
    Flag("port", int, 8000),
    Flag("headless", None, False),
    Flag("api-server-count", int, 1, ("-asc",)),
    Flag("model"),
    Flag("tokenizer"),
    Flag("tokenizer-mode", default="auto"),
    Flag("trust-remote-code", None, False),
    Flag("dtype", default="auto"),
    Flag("seed", int, 0),
    Flag("revision"),
    Flag("max-model-len", _length),
    Flag("quantization", short=("-q",)),
    Flag("enforce-eager", None, False),
    Flag("served-model-name", several=True),
    Flag("generation-config", default="auto"),
    Flag("language-model-only", None, False),
    Flag("load-format", default="auto"),
    Flag("download-dir"),
    Flag("safetensors-load-strategy"),
    Flag("attention-backend"),
    Flag("attention-config", _json, None, ("-ac",)),
    Flag("distributed-executor-backend"),
    Flag("pipeline-parallel-size", int, 1, ("-pp",)),
    Flag("tensor-parallel-size", int, 1, ("-tp",)),
    Flag("decode-context-parallel-size", int, 1, ("-dcp",)),
    Flag("dcp-comm-backend", default="ag_rs"),
    Flag("data-parallel-size", int, 1, ("-dp",)),
    Flag("data-parallel-size-local", int, None, ("-dpl",)),
    Flag("data-parallel-address", short=("-dpa",)),
    Flag("data-parallel-rpc-port", int, None, ("-dpp",)),
    Flag("data-parallel-start-rank", int, None, ("-dpr",)),
    Flag("data-parallel-hybrid-lb", None, False),
    Flag("enable-expert-parallel", None, False, ("-ep",)),
    Flag("all2all-backend"),
    Flag("moe-backend", default="auto"),
    Flag("nnodes", int, 1),
    Flag("node-rank", int, 0),
    Flag("master-addr", default="127.0.0.1"),
    Flag("master-port", int, 29501),
    Flag("disable-custom-all-reduce", None, False),
    Flag("gpu-memory-utilization", float, 0.92),
    Flag("kv-cache-memory-bytes", _size),
    Flag("kv-cache-dtype", default="auto", choices=("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_ds_mla")),
    Flag("block-size", int),
    Flag("num-gpu-blocks-override", int),
    Flag("enable-prefix-caching", None, None),
    Flag("prefix-caching-hash-algo", default="sha256", choices=("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")),
    Flag("prefix-cache-retention-interval", _interval, 0),
    Flag("prefix-match-unit", int),
    Flag("mamba-cache-mode", choices=("align", "none")),
    Flag("mamba-cache-dtype", default="auto", choices=("auto", "float32", "float16", "bfloat16")),
    Flag("mamba-ssm-cache-dtype", default="auto", choices=("auto", "float32", "float16", "bfloat16")),
    Flag("cpu-offload-gb", float, 0.0),
    Flag("limit-mm-per-prompt", _json),
    Flag("mm-encoder-tp-mode", default="data", choices=("data", "weights")),
    Flag("max-num-batched-tokens", _size),
    Flag("max-num-seqs", int),
    Flag("watermark", float, 0.0),
    Flag("enable-chunked-prefill", None, None),
    Flag("disable-hybrid-kv-cache-manager", None, None),
    Flag("scheduling-policy", default="fcfs", choices=("fcfs", "priority")),
    Flag("async-scheduling", None, None),
    Flag("speculative-config", _json, None, ("-sc",)),
    Flag("compilation-config", _json, None, ("-cc", "-O")),
    Flag("enable-flashinfer-autotune", None, True),
    Flag("kv-cache-metrics", None, False),
    Flag("disable-log-stats", None, False),
)

_KNOWN_NAMES = """
ALLREDUCE_USE_FLASHINFER ATTENTION_BACKEND BATCH_INVARIANT CACHE_ROOT CONFIG_ROOT CONFIGURE_LOGGING CPU_KVCACHE_SPACE
CPU_OMP_THREADS_BIND CUDA_COMPATIBILITY_PATH DO_NOT_TRACK ENABLE_CUDA_COMPATIBILITY ENABLE_V1_MULTIPROCESSING
ENGINE_ITERATION_TIMEOUT_S ENGINE_READY_TIMEOUT_S EXECUTE_MODEL_TIMEOUT_SECONDS HOST_IP HTTP_TIMEOUT_KEEP_ALIVE
KEEP_ALIVE_ON_ENGINE_DEATH KIMI_K3_SHARD_SP_SHARED_EXPERT LOG_STATS_INTERVAL LOGGING_COLOR LOGGING_CONFIG_PATH
LOGGING_LEVEL LOGGING_PREFIX LOGGING_STREAM MEDIA_LOADING_THREAD_COUNT MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS
MOE_DP_CHUNK_SIZE NCCL_SO_PATH NO_USAGE_STATS PORT RAY_DP_PACK_STRATEGY RINGBUFFER_WARNING_INTERVAL ROCM_USE_AITER
ROCM_USE_AITER_MOE_SITUV2 SERVER_DEV_MODE SLEEP_WHEN_IDLE SSM_CONV_STATE_LAYOUT TARGET_DEVICE TRACE_FUNCTION
TUNED_CONFIG_FOLDER USAGE_SOURCE USAGE_STATS_SERVER USE_BREAKABLE_CUDAGRAPH USE_DEEP_GEMM USE_FLASHINFER_SAMPLER
USE_MODELSCOPE USE_RUST_FRONTEND USE_TRITON_FLASH_ATTN USE_V2_MODEL_RUNNER WORKER_MULTIPROC_METHOD XLA_CACHE_PATH
"""
KNOWN_VARIABLES = frozenset(f"VLLM_{name}" for name in _KNOWN_NAMES.split())


class _Parser(argparse.ArgumentParser):
    """argparse with the usage line that vLLM prints for a wrong flag."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"usage: {self.usage or self.prog}\n{self.prog}: error: {message}\n")


def flags_of(profile: Profile) -> tuple[Flag, ...]:
    """The flags of a release, with its defaults and choices."""
    return tuple(
        replace(
            flag,
            default=profile.defaults.get(flag.name, flag.default),
            choices=profile.choices.get(flag.name, flag.choices),
        )
        for flag in FLAGS
        if flag.name not in profile.flags_without
    )


def parse_arguments(argv: Sequence[str], profile: Profile | None = None) -> dict[str, Any]:
    """
    The words after the program's name as values by vLLM's own keys.

    Args:
        argv: `["serve", "moonshotai/Kimi-K3", "--port", "8000"]`.
        profile: The release that is played; None is the newest.

    Returns:
        Every flag by its key, `model_tag` and `model` among them.

    Raises:
        SystemExit: 0 for `--version` and `--help`; 2 for anything vLLM refuses, with its usage text on stderr.

    >>> parse_arguments(["serve", "moonshotai/Kimi-K3", "--max_model_len", "128K"])["max_model_len"]
    131072
    """
    profile = profile or find_profile()
    parser = _Parser(prog="vllm", usage=_USAGE)
    parser.add_argument("-v", "--version", action="version", version=profile.program_version)
    serve = parser.add_subparsers(dest="subparser").add_parser("serve", usage="vllm serve [model_tag] [options]")
    serve.add_argument("model_tag", nargs="?")
    for flag in flags_of(profile):
        _add(serve, flag)
    values = vars(parser.parse_args([_dashes(word) for word in argv]))
    if values.pop("subparser") is None:
        parser.print_help()
        raise SystemExit(0)
    values["model"] = values["model_tag"] or values["model"] or "Qwen/Qwen3-0.6B"
    return values


def _add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    names = [f"--{flag.name}", *flag.short]
    if flag.read is None:
        parser.add_argument(*names, action=argparse.BooleanOptionalAction, default=flag.default)
    elif flag.several:
        parser.add_argument(*names, nargs="+", default=flag.default)
    else:
        parser.add_argument(*names, type=flag.read, default=flag.default, choices=flag.choices)


def _dashes(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def non_default_arguments(values: Mapping[str, Any], profile: Profile | None = None) -> dict[str, Any]:
    """
    What the line `non-default args:` shows: the tag as typed, and every value that differs from its default.

    >>> non_default_arguments(parse_arguments(["serve", "m", "-tp", "8"]))
    {'model_tag': 'm', 'model': 'm', 'tensor_parallel_size': 8}
    """
    shown = {"model_tag": values["model_tag"]} if values["model_tag"] else {}
    for flag in flags_of(profile or find_profile()):
        key = flag.name.replace("-", "_")
        if values[key] != flag.default:
            shown[key] = "***" if key == "api_key" else values[key]
    return shown


def unknown_variables(environment: Mapping[str, str], profile: Profile | None = None) -> list[str]:
    """
    Variables that this release warns of and ignores.

    Source:
        vLLM 0.33.0 platforms/interface.py:1466-1471; the retention variable is gone since 0.29.

    >>> unknown_variables({"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "0", "VLLM_HOST_IP": "127.0.0.1", "HOME": "/"})
    ['VLLM_PREFIX_CACHE_RETENTION_INTERVAL']
    >>> unknown_variables({"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "0"}, find_profile("0.28.0"))
    []
    """
    profile = profile or find_profile()
    known = (KNOWN_VARIABLES | profile.variables_with) - profile.variables_without
    return sorted(name for name in environment if name.startswith("VLLM_") and name not in known)
