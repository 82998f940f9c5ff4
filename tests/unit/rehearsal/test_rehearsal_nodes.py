"""Several engines and several nodes: a head and headless processes that meet, serve together and lose each other."""

from __future__ import annotations

import re
import signal
import threading
import time
from typing import Any

import pytest

from k3lib.knowledge.hardware import find_machine
from k3lib.knowledge.profiles import find_profile
from k3lib.rehearsal.arguments import parse_arguments
from k3lib.rehearsal.config import resolve_config
from k3lib.rehearsal.placement import ConfigFailure, Placement

MACHINE = {"K3_REHEARSAL_MACHINE": "16xB200", "K3_REHEARSAL_SPEED": "100000", "K3_REHEARSAL_SERVE_SPEED": "200"}
FIT = ("--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.90", "--max-model-len", "16384")
PIPELINE = ("-tp", "8", "-pp", "2", "--nnodes", "2")
REPLICAS = ("-tp", "8", "-dp", "2", "--enable-expert-parallel", "--data-parallel-size-local", "1")


def place(words: tuple[str, ...], machine: str = "16xB200") -> Placement:
    """Where the flags put this process."""
    values = parse_arguments(["serve", "m", *words], find_profile())
    return resolve_config(values, {}, find_machine(machine)).placement


def test_placement() -> None:
    """Ranks and cores of each node follow from the flags; the others are absent until they come."""
    head, other = place(PIPELINE), place((*PIPELINE, "--node-rank", "1", "--headless"))
    assert (tuple(range(8)), (0,), 8) == (head.ranks, head.engines, head.absent)
    assert (tuple(range(8, 16)), (), True) == (other.ranks, other.engines, other.headless)
    replica = place((*REPLICAS, "--headless", "--data-parallel-start-rank", "1"))
    assert (tuple(range(8, 16)), (1,)) == (replica.ranks, replica.engines)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("8xGB300", ("-tp", "8")),
        ("16xB200", ("-tp", "16")),
        ("16xB200", ("-tp", "8", "--nnodes", "3")),
        ("16xB200", ("-tp", "8", "-dp", "2", "--data-parallel-size-local", "3")),
        ("16xB200", ("-tp", "8", "--decode-context-parallel-size", "3")),
    ],
)
def test_what_does_not_fit_one_node_is_refused(machine: str, words: tuple[str, ...]) -> None:
    """A tray of GB300 holds four GPUs, so eight are two nodes; a cut that does not come out is refused as well."""
    with pytest.raises(ConfigFailure):
        place(words, machine)


def start_pair(start: Any, flags: tuple[str, ...], second: tuple[str, ...], address: str, port: int) -> tuple[Any, Any]:
    """A head and a headless node of one engine."""
    meet = (address, str(port))
    head = start(*FIT, *flags, *meet, base=(), **MACHINE)
    return head, start(*FIT, *flags, *second, *meet, base=(), **MACHINE)


@pytest.fixture
def free_port() -> int:
    """A port on which nodes can meet."""
    from socket import socket

    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_one_engine_over_two_nodes(start: Any, free_port: int) -> None:
    """Each node writes its own ranks; only the head has a core, gets ready and answers; both end when the head does."""
    head, other = start_pair(start, PIPELINE, ("--node-rank", "1", "--headless"), "--master-port", free_port)
    head.wait_ready()
    assert head.chat("Hello.", max_tokens=5)[0] == 200
    assert {f"Worker_PP0_TP{rank}" for rank in range(8)} == set(re.findall(r"Worker_\w+", head.log))
    assert {f"Worker_PP1_TP{rank}" for rank in range(8)} == set(re.findall(r"Worker_\w+", other.log))
    said = f"headless multiproc executor, with head node address 127.0.0.1:{free_port} for torch.distributed"
    assert said in other.log
    assert "EngineCore" not in other.log
    assert "Application startup complete." not in other.log
    head.process.send_signal(signal.SIGTERM)
    assert (0, 0) == (head.wait_end(), other.wait_end())


def test_two_replicas_share_the_load(start: Any, free_port: int) -> None:
    """Requests spread over both engines, each with its own counters and its own line in the log."""
    second = ("--headless", "--data-parallel-start-rank", "1")
    head, other = start_pair(start, REPLICAS, second, "--data-parallel-rpc-port", free_port)
    head.wait_ready()
    threads = [
        threading.Thread(target=head.chat, args=("Go.",), kwargs={"max_tokens": 400, "ignore_eos": True})
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = head.ask("/metrics")[1].decode()
    finished = re.findall(r'vllm:request_success_total\{engine="(\d)",finished_reason="length",.*\} (\d+)', text)
    assert {"0": 4.0, "1": 4.0} == {engine: float(count) for engine, count in finished}
    assert 2 == len(re.findall(r"^vllm:cache_config_info\{", text, re.M))
    assert "(EngineCore_DP0 pid=" in head.log
    assert "(EngineCore_DP1 pid=" in other.log
    assert (
        f"Launching 1 data parallel engine(s) in headless mode, with head node address tcp://127.0.0.1:{free_port}."
        in (other.log)
    )


def test_two_replicas_on_one_node(start: Any) -> None:
    """With all replicas local there is nobody to wait for; both cores write."""
    flags = ("-tp", "4", "-dp", "2", "--enable-expert-parallel", "--kv-cache-dtype", "fp8")
    running = start(*flags, base=(), VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT="1").wait_ready()
    assert running.chat("Hello.", max_tokens=5)[0] == 200
    assert {"EngineCore_DP0", "EngineCore_DP1"} == set(re.findall(r"EngineCore_DP\d", running.log))
    assert running.log.count("init engine (profile") == 2


def test_a_node_that_is_killed(start: Any, free_port: int) -> None:
    """The head goes on looking healthy, its requests hang, then the call to the workers times out and it dies."""
    head, other = start_pair(start, PIPELINE, ("--node-rank", "1", "--headless"), "--master-port", free_port)
    head.wait_ready()
    other.process.kill()
    time.sleep(0.3)
    assert head.ask("/health")[0] == 200
    status, answer = head.chat("Hello.")
    assert (500, "InternalServerError") == (status, answer["error"]["type"])
    assert head.wait_end(20) == 0
    assert "TimeoutError: RPC call to execute_model timed out." in head.log


def test_a_node_that_never_comes(start: Any, free_port: int) -> None:
    """The head waits for the other ranks until the front end's patience ends, in `init`; a headless node waits on."""
    alone = start(*FIT, *PIPELINE, "--master-port", str(free_port), base=(), **MACHINE)
    assert alone.wait_end(30) == 1
    assert "Timed out waiting for engine core processes to start." in alone.log
    assert "world_size=" not in alone.log
