"""The pretend machine as a shell: what its tools print is read by the parsers and the collector of the real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from k3lib.knowledge.hardware import load_machines
from k3lib.logs.nvidia_smi import NvidiaState, parse_list, parse_state
from k3lib.probe.snapshot import parse_collected, read_snapshot
from k3lib.rehearsal.config import read_stage
from k3lib.rehearsal.machine import PretendMachine

COLLECTOR = Path(__file__).parents[3] / "k3lib" / "probe" / "collector.py"


def machine(scenario: str = "healthy", *, container: bool = False, **variables: str) -> PretendMachine:
    """A machine by its variables."""
    return PretendMachine(read_stage({"K3_REHEARSAL_SCENARIO": scenario, **variables}), container=container)


def state_of(pretend: PretendMachine) -> NvidiaState:
    """Its `nvidia-smi -q -x`, read."""
    state = parse_state(pretend.run(["nvidia-smi", "-q", "-x"]).out)
    assert state is not None
    return state


@pytest.mark.parametrize("name", [name for name, one in load_machines().items() if one.gpu.vendor == "nvidia"])
def test_list_and_xml_agree(name: str) -> None:
    """Every NVIDIA profile lists the GPUs of one node, alike in the list and in the XML, with the memory of its GPU."""
    profile = load_machines()[name]
    pretend = machine(K3_REHEARSAL_MACHINE=name)
    listed = parse_list(pretend.run(["nvidia-smi", "-L"]).out)
    state = state_of(pretend)
    assert profile.gpus // profile.nodes == len(listed) == len(state.gpus) == state.attached
    assert [one.uuid for one in listed] == [one.uuid for one in state.gpus]
    assert {profile.gpu.product} == {one.name for one in state.gpus}
    total = state.gpus[0].memory_total_bytes
    assert total is not None
    assert profile.gpu.memory_gib == pytest.approx(total / (1 << 30), abs=0.01)
    assert state.processes == ()


@pytest.mark.parametrize(("held", "scenario"), [(1, "co-tenant"), (8, "orphan"), (0, "intermittent")])
def test_who_holds_the_gpus(held: int, scenario: str) -> None:
    """A co-tenant shows on one GPU, the orphans on all; one that comes later does not show before the start."""
    state = state_of(machine(scenario, K3_REHEARSAL_SEED="3"))
    assert held == len(state.processes)
    if scenario == "co-tenant":
        assert state.processes[0].gpu == state.gpus[3].uuid


def test_a_container_without_gpus() -> None:
    """Inside the container there is no nvidia-smi; the host sees all eight."""
    assert 127 == machine("no-gpus", container=True).run(["nvidia-smi", "-L"]).code
    assert 8 == len(parse_list(machine("no-gpus").run(["nvidia-smi", "-L"]).out))


def test_queries() -> None:
    """A query gives the fields asked for, in their order; an unknown one is refused as nvidia-smi refuses it."""
    pretend = machine(K3_REHEARSAL_MACHINE="8xGB300")
    answer = pretend.run(["nvidia-smi", "--query-gpu=index,name,compute_cap", "--format=csv,noheader"])
    assert [f"{index}, NVIDIA GB300, 10.3" for index in range(4)] == answer.out.splitlines()
    wrong = pretend.run(["nvidia-smi", "--query-gpu=index,colour", "--format=csv"])
    assert ('Field "colour" is not a valid field to query.\n\n', 2) == (wrong.out, wrong.code)


def test_an_upgrade_that_stopped_half_way() -> None:
    """The module that is loaded and the one on disk differ, and so do libcuda's package and NVML's."""
    pretend = machine("driver-half-upgraded")
    loaded = pretend.files()["/sys/module/nvidia/version"]
    assert loaded != pretend.run(["modinfo", "-F", "version", "nvidia"]).out
    assert "nvidia-driver-cuda-libs 580.126.09" in pretend.run(["rpm", "-qa"]).out
    assert "Driver Version: 580.105.08" in pretend.run(["nvidia-smi"]).out


def test_a_moved_tag_shows_in_the_digest() -> None:
    """Behind one tag two digests are found, by the seed of the start."""
    digests = set()
    for seed in range(8):
        answer = machine("moved-tag", K3_REHEARSAL_SEED=str(seed)).run(["docker", "image", "inspect", "any"])
        (image,) = json.loads(answer.out)
        digests.add(image["RepoDigests"][0])
    assert 2 == len(digests)
    assert {"vllm/vllm-openai"} == {digest.partition("@")[0] for digest in digests}


def test_a_variable_left_behind_shows_in_the_container() -> None:
    """The variable stands in the container's environment and its description, not in the host's."""
    assert "CUDA_LAUNCH_BLOCKING=1" in machine("debug-left", container=True).run(["env"]).out
    assert "CUDA_LAUNCH_BLOCKING" not in machine("debug-left").run(["env"]).out
    (described,) = json.loads(machine("debug-left").run(["docker", "inspect", "k3"]).out)
    assert "NCCL_DEBUG=INFO" in described["Config"]["Env"]


def test_the_kernel_tells_what_the_log_does_not() -> None:
    """A worker that vanished without a word was killed for memory, says the kernel; a healthy kernel says nothing."""
    assert "Out of memory: Killed process" in machine("host-oom").run(["dmesg"]).out
    assert "Out of memory" not in machine().run(["dmesg"]).out


@pytest.mark.parametrize("scenario", ["healthy", "co-tenant"])
def test_the_collector_looks_at_it(tmp_path: Path, scenario: str) -> None:
    """The stand-alone collector, run against the machine on disk, finds its GPUs, driver and who holds them."""
    variables = {"K3_REHEARSAL_SCENARIO": scenario}
    words = [sys.executable, "-m", "k3lib.rehearsal", "machine", "--into", str(tmp_path)]
    assert 0 == subprocess.run(words, env={**os.environ, **variables}, timeout=30, check=False).returncode
    argv = [sys.executable, str(COLLECTOR), "--root", str(tmp_path / "root"), "--python", "/nowhere/python3"]
    env: dict[str, Any] = {"PATH": f"{tmp_path / 'bin'}", "HOME": "/nonexistent"}
    ran = subprocess.run(argv, env=env, capture_output=True, timeout=120, check=False)
    assert 0 == ran.returncode, ran.stderr.decode()
    snapshot = read_snapshot(parse_collected(ran.stdout, "the collector"))
    assert 8 == len(snapshot.gpus)
    assert (1 if scenario == "co-tenant" else 0) == len(snapshot.gpu_processes)
    assert "580.105.08" in snapshot.model_dump_json()


def test_wrong_words_are_told() -> None:
    """Nothing asked is the usage text and 2; a program it has not is 127."""
    words = [sys.executable, "-m", "k3lib.rehearsal", "machine"]
    assert 2 == subprocess.run(words, capture_output=True, timeout=30, check=False).returncode
    assert 127 == subprocess.run([*words, "frobnicate"], capture_output=True, timeout=30, check=False).returncode
