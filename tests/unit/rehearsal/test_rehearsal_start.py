"""Starts of the rehearsal: milestones, refusals and deaths, each as a real process."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from typing import Any

import psutil
import pytest

from k3lib.knowledge.profiles import find_profile
from k3lib.rehearsal.arguments import parse_arguments

VERSION = find_profile().version

MILESTONES = (
    "REHEARSAL: ",
    f"version {VERSION}",
    "non-default args: {'model_tag': 'moonshotai/Kimi-K3', ",
    "Resolved architecture: KimiK3ForConditionalGeneration",
    "Using max model len 1048576",
    "Mamba cache mode is set to 'align' for KimiK3ForConditionalGeneration by default",
    f"Initializing a V1 LLM engine (v{VERSION}) with config: ",
    "world_size=8 rank=7 local_rank=7 ",
    "vLLM is using nccl==",
    "Loading model from scratch...",
    "Loading safetensors checkpoint shards: 100% Completed | 96/96",
    "Loading weights took 1200.00 seconds",
    "Model loading took 189.75 GiB memory and ",
    "Setting attention block size to 1536 tokens",
    "Padding mamba page size by 8.68%",
    "Available KV cache memory: 57.06 GiB",
    "Add 3 padding layers, may waste at most 4.35% KV cache memory",
    "GPU KV cache size: 4,371,592 tokens, Maximum concurrency for 1,048,576 tokens per request: 4.17x",
    "Graph capturing finished in 24 secs, took 1.80 GiB",
    "init engine (profile, create kv cache, warmup model) took 52.00 s",
    "Starting vLLM server on http://127.0.0.1:",
    "Application startup complete.",
)


def test_milestones_in_order(start: Any) -> None:
    """A healthy start writes 0.33.0's milestones in order, per rank where vLLM does, after saying what it is."""
    log = start().wait_ready().log
    positions = [log.find(milestone) for milestone in MILESTONES]
    assert -1 not in positions, MILESTONES[positions.index(-1)]
    assert sorted(positions) == positions
    assert "no GPU, no Kimi K3 weights" in log.splitlines()[0]
    assert len(re.findall(r"\(Worker_TP\d pid=\d+\) INFO .* Model loading took ", log)) == 8
    assert log.count("Loading weights took ") == 1


def test_log_clock_is_modelled(start: Any) -> None:
    """Reading the weights is twenty minutes in the log and under a second on the wall."""
    began = time.monotonic()
    log = start().wait_ready().log
    assert time.monotonic() - began < 5
    first, last = (_stamp(log, text) for text in ("Loading model from scratch", "Loading weights took"))
    assert 1200 <= (last - first).total_seconds() <= 1210


def _stamp(log: str, text: str) -> datetime:
    line = next(line for line in log.splitlines() if text in line)
    found = re.search(r"INFO (\d\d-\d\d \d\d:\d\d:\d\d) ", line)
    assert found
    return datetime.strptime(f"2026-{found[1]}", "%Y-%m-%d %H:%M:%S")


def test_unknown_flag(start: Any) -> None:
    """An unknown flag ends in vLLM's usage text and exit code 2, before anything else is written."""
    running = start("--no-such-flag", "3")
    assert running.wait_end() == 2
    expected = (
        "usage: vllm [-h] [-v]\n"
        "            {chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot}\n"
        "            ...\n"
        "vllm: error: unrecognized arguments: --no-such-flag 3\n"
    )
    assert expected == running.log


def test_unknown_variable_only_warns(start: Any) -> None:
    """A variable that 0.33 no longer knows is named and ignored."""
    log = start(VLLM_PREFIX_CACHE_RETENTION_INTERVAL="0", VLLM_ENGINE_READY_TIMEOUT_S="3600").wait_ready().log
    found = re.findall(r"WARNING .*Unknown vLLM environment variable detected: (\w+)", log)
    assert ["VLLM_PREFIX_CACHE_RETENTION_INTERVAL"] == found


def test_version() -> None:
    """`--version` prints one line that says rehearsal."""
    argv = [sys.executable, "-m", "k3lib.rehearsal", "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "0.33.0+rehearsal\n"


def test_unknown_scenario_is_our_error(start: Any) -> None:
    """A misspelt scenario is refused in four lines with exit code 2."""
    running = start(K3_REHEARSAL_SCENARIO="oom-weight")
    assert running.wait_end() == 2
    assert [line.split(":")[0].strip() for line in running.log.splitlines()] == [
        "KnowledgeError",
        "expected",
        "evidence",
        "next",
    ]


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["-tp", "8"], "tensor_parallel_size", 8),
        (["--max_model_len=128K"], "max_model_len", 131_072),
        (["--max-model-len", "auto"], "max_model_len", -1),
        (["--no-enable-prefix-caching"], "enable_prefix_caching", False),
        (["--enable-prefix-cachin"], "enable_prefix_caching", True),
        (["--prefix-cache-retention-interval", "None"], "prefix_cache_retention_interval", None),
        (["--attention-config", '{"flash": true}'], "attention_config", {"flash": True}),
    ],
)
def test_arguments_as_argparse_takes_them(words: list[str], key: str, value: object) -> None:
    """Short forms, underscores, sizes, switches and abbreviations mean what they mean to vLLM."""
    assert value == parse_arguments(["serve", "m", *words], find_profile())[key]


def test_port_in_use(start: Any) -> None:
    """A taken port is vLLM's OSError and exit code 1, before the engine starts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        running = start(port=taken.getsockname()[1])
        assert running.wait_end() == 1
    assert running.log.endswith("OSError: [Errno 98] Address already in use\n")
    assert "Initializing a V1 LLM engine" not in running.log


def test_out_of_memory_in_weights(start: Any) -> None:
    """On too small GPUs every rank fails in create_weights, then core and API server repeat it; exit code 1."""
    running = start(K3_REHEARSAL_SCENARIO="oom-weights")
    assert running.wait_end() == 1
    log = running.log
    roots = re.findall(r"\(Worker_TP(\d) .*torch\.OutOfMemoryError: CUDA out of memory\. Tried to allocate \d", log)
    assert list("01234567") == roots
    assert "in create_weights" in log
    order = [log.find(text) for text in ("WorkerProc failed to start.", "EngineCore failed to start.")]
    order.append(log.find("RuntimeError: Engine core initialization failed. See root cause above."))
    assert sorted(order) == order
    assert -1 not in order
    assert "Loading safetensors" not in log


def test_tp1_cannot_hold_the_model(start: Any) -> None:
    """Without --tensor-parallel-size one GPU is asked for the whole model, and fails as a real one would."""
    running = start(base=())
    assert running.wait_end() == 1
    assert running.log.count("WorkerProc failed to start.") == 1


def test_kv_cache_too_small(start: Any) -> None:
    """The refusal names need, rest and a length; that length then starts on the same machine."""
    refused = start("--max-model-len", "16384", K3_REHEARSAL_SCENARIO="kv-too-small")
    assert refused.wait_end() == 1
    found = re.search(
        r"ValueError: To serve at least one request with the model's max seq len \(16384\), \(([\d.]+) GiB KV cache is "
        r"needed, which is larger than the available KV cache memory \(([\d.]+) GiB\)\. Based on the available memory, "
        r"the estimated maximum model length is (\d+)\.",
        refused.log,
    )
    assert found
    assert float(found[1]) > float(found[2])
    start("--max-model-len", found[3], K3_REHEARSAL_SCENARIO="kv-too-small").wait_ready()


def test_no_kv_memory(start: Any) -> None:
    """A utilisation below the weights leaves a negative amount, which the log shows before it refuses."""
    running = start("--gpu-memory-utilization", "0.5")
    assert running.wait_end() == 1
    assert re.search(r"Available KV cache memory: -\d+\.\d+ GiB", running.log)
    assert "ValueError: No available memory for the cache blocks." in running.log


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ("--gpu-memory-utilization", "0.999"),
            "Free memory on device cuda:0 (267.1/267.7 GiB) on startup is less",
        ),
        (("-tp", "16"), "World size (16) is larger than the number of available GPUs (8) in this node."),
        (("-tp", "7"), "Total number of attention heads (96) must be divisible by tensor parallel size (7)."),
        (("--max-model-len", "2000000"), "User-specified max_model_len (2000000) is greater than the derived"),
        (("--prefix-cache-retention-interval", "32768"), "multiple of scheduler_block_size (1536)."),
    ],
)
def test_refused_configurations(start: Any, flags: tuple[str, ...], text: str) -> None:
    """What 0.33.0 refuses is refused in its words, with exit code 1."""
    running = start(*flags)
    assert running.wait_end() == 1
    assert text in running.log


def test_slow_start_stays_in_weights(start: Any) -> None:
    """Slow storage never gets past the weights; SIGTERM ends it in order, exit code 0."""
    running = start(K3_REHEARSAL_SCENARIO="slow-start", VLLM_ENGINE_READY_TIMEOUT_S="1e9")
    time.sleep(1.5)
    assert running.process.poll() is None
    running.process.send_signal(signal.SIGTERM)
    assert running.wait_end() == 0
    assert "0% Completed | 0/96" in running.log
    assert "Loading weights took" not in running.log
    assert "[shutdown] API server: shutdown triggered" in running.log


@pytest.mark.parametrize(("ended", "patience_s"), [(True, "600"), (False, "3600")])
def test_ready_timeout_is_kept_in_modelled_time(start: Any, ended: bool, patience_s: str) -> None:
    """Twenty minutes of reading outlast vLLM's own 600 s and not the recipe's 3,600, at any speed of this machine."""
    running = start(VLLM_ENGINE_READY_TIMEOUT_S=patience_s, K3_REHEARSAL_SPEED="20000")
    if ended:
        assert running.wait_end() == 1
        assert f"Waited {patience_s}s (configured by VLLM_ENGINE_READY_TIMEOUT_S)" in running.log
        assert "Loading weights took" not in running.log
    else:
        running.wait_ready()


def test_core_killed_while_starting(start: Any) -> None:
    """A core killed before it was ready leaves no traceback of its own; the API server names it; exit code 1."""
    running = start(K3_REHEARSAL_SCENARIO="slow-start", K3_REHEARSAL_WORKERS="1", VLLM_ENGINE_READY_TIMEOUT_S="1e9")
    time.sleep(1.0)
    psutil.Process(running.process.pid).children()[0].kill()
    assert running.wait_end() == 1
    assert "EngineCore failed to start." not in running.log
    assert running.log.endswith("Failed core proc(s): {'EngineCore': -9}\n")


def test_intermittent_follows_the_seed(start: Any) -> None:
    """Some seeds start and some fail on one rank; the same seed always does the same."""
    from k3lib.rehearsal.config import read_stage

    drawn = {
        seed: read_stage({"K3_REHEARSAL_SCENARIO": "intermittent", "K3_REHEARSAL_SEED": str(seed)}).changes
        for seed in range(200)
    }
    failing = [seed for seed, changes in drawn.items() if changes.tenant_gib]
    assert 80 <= len(failing) <= 120
    healthy = min(set(drawn) - set(failing))
    start(K3_REHEARSAL_SCENARIO="intermittent", K3_REHEARSAL_SEED=str(healthy)).wait_ready()
    for _ in range(2):
        running = start(K3_REHEARSAL_SCENARIO="intermittent", K3_REHEARSAL_SEED=str(failing[0]))
        assert running.wait_end() == 1
        assert running.log.count("torch.OutOfMemoryError") == 1
        assert "Process 4121 has 96.00 GiB memory in use." in running.log


def test_another_machine(start: Any) -> None:
    """On eight MI355X with a bf16 cache blocks are 768 tokens and 1M-token requests fit about twice."""
    base = ("-tp", "8", "--gpu-memory-utilization", "0.95")
    log = start(base=base, K3_REHEARSAL_MACHINE="8xMI355X").wait_ready().log
    assert "Setting attention block size to 768 tokens" in log
    found = re.search(r"Maximum concurrency for 1,048,576 tokens per request: ([\d.]+)x", log)
    assert found
    assert 1.9 <= float(found[1]) <= 2.5


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        (
            "--enable-prefix-caching",
            "INFO .* Mamba cache mode is set to 'align' for KimiK3ForConditionalGeneration by default",
        ),
        ("--no-enable-prefix-caching", "WARNING .* Mamba cache mode is set to 'none' when prefix caching is disabled"),
    ],
)
def test_cache_mode_is_logged(start: Any, flag: str, text: str) -> None:
    """The log tells the cache mode in effect, on and off."""
    assert re.search(text, start(flag).wait_ready().log)


def test_dummy_load_reads_no_disk(start: Any) -> None:
    """`--load-format dummy` allocates the weights without a shard being read."""
    log = start("--load-format", "dummy").wait_ready().log
    assert "Loading safetensors" not in log
    assert "Model loading took 189.75 GiB memory" in log
