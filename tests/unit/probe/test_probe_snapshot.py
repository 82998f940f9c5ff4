"""A collection is read part by part; what is no collection is refused, and nothing passes for a quiet machine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.errors import InputError
from k3lib.probe.snapshot import parse_collected, read_snapshot
from k3lib.probe.variables import select_gpus
from k3lib.spec.accelerators import Gpu
from k3lib.spec.snapshot import Collected, Snapshot, Source

NAMES = (
    "nvml", "nvidia-smi-xml", "nvidia-smi-list", "nvidia-smi-gpus", "nvidia-smi-processes", "nvidia-smi", "rocm-smi",
    "amd-smi-list", "amd-smi-static", "amd-smi-process", "docker-containers", "docker-inspect", "journal", "dmesg",
    "machine", "devices", "disks", "network", "processes", "libraries", "cuda", "/proc/meminfo", "/proc/mounts",
    "/proc/stat", "units", "unit-states", "slurm-history", "pods", "dpkg", "interpreters", "given-files",
    "python /usr/bin/python3",
)  # fmt: skip
GPUS = [Gpu(index=n, vendor="nvidia", uuid=f"GPU-{'abcd'[n]}{n}000000") for n in range(4)]


def collected(**sources: Source) -> Collected:
    """A collection of these sources."""
    return Collected(collector=1, taken_at="2026-11-30T10:00:00+00:00", took_s=1.0, uid=1000, sources=sources)


def read(**texts: str | list[Any] | dict[str, Any]) -> Snapshot:
    """A snapshot of sources that answered: a text, or a structure."""
    return read_snapshot(
        collected(
            **{
                name: Source(asked=name, ok=True, **({"text": value} if isinstance(value, str) else {"data": value}))
                for name, value in texts.items()
            }
        )
    )


@pytest.mark.parametrize(
    "content",
    [
        "", "{}", "[]", "null", '{"hello": "world"}', "GPU 0: NVIDIA B200",
        '{"collector": 1, "taken_at": "x", "took_s": 1, "sources": {}}',
        '{"collector": 2, "taken_at": "x", "took_s": 1, "sources": {"a": {"asked": "a", "ok": true}}}',
    ],
)  # fmt: skip
def test_anything_else_is_refused(content: str) -> None:
    """What is no output of the collector, or of a later one, is an error and never an empty machine."""
    with pytest.raises(InputError) as caught:
        parse_collected(content, "host.json")
    assert "host.json is no output of the collector" == caught.value.what


@given(st.dictionaries(st.sampled_from(NAMES), st.text() | st.binary().map(lambda b: b.decode("latin-1")), max_size=6))
def test_any_text_is_read(texts: dict[str, str]) -> None:
    """Whatever the sources print, a snapshot comes out."""
    assert read(**texts).model_dump_json()


JSON = st.recursive(st.none() | st.integers() | st.text(max_size=8), lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["gpus", "pci", "path", "name", "ports", "interfaces", "variables", "nodes", "argv"]), v, max_size=3), max_leaves=8)  # fmt: skip # noqa: E501


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6))
def test_any_structure_is_read(structures: dict[str, Any]) -> None:
    """A source of another form than ours costs its own part, with a reason."""
    found = read_snapshot(collected(**{k: Source(asked=k, ok=True, data=v) for k, v in structures.items()}))
    assert found.model_dump_json()


def test_a_broken_part_says_so() -> None:
    """A structure that is not ours leaves the part out, gives the reason, and the rest is read."""
    found = read(nvml={"gpus": 7}, machine={"name": "node1"})
    assert found.gpus is None
    assert found.reasons["gpus"].startswith("what was collected cannot be read: TypeError")
    assert "node1" == found.host.name


def test_a_quiet_log_is_no_proof() -> None:
    """A kernel log without a line that we know is unknown, not quiet."""
    found = read(journal="-- No entries --\n", dmesg="")
    assert [] == found.kernel_events or found.kernel_events is None
    assert read(dmesg="", journal="").kernel_events is None


INSPECTION = [
    {
        "Id": "ab" * 32, "Name": "/k3", "Image": "sha256:old", "Created": "2026-11-25T08:00:00Z", "RestartCount": 4,
        "State": {"Running": True, "StartedAt": "2026-11-29T08:00:00Z"},
        "Config": {
            "Image": "vllm/vllm-openai:kimi-k3", "Entrypoint": ["vllm", "serve"], "Cmd": ["moonshotai/Kimi-K3"],
            "Env": ["NCCL_DEBUG=TRACE", "NVIDIA_VISIBLE_DEVICES=all", "DATABASE_URL"],
        },
        "HostConfig": {
            "RestartPolicy": {"Name": "unless-stopped"}, "ShmSize": 67108864, "IpcMode": "private", "Runtime": "nvidia",
            "NetworkMode": "host", "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None}],
        },
        "Mounts": [{"Source": "/data/k3", "Destination": "/models", "RW": False}],
    }
]  # fmt: skip


def test_a_container() -> None:
    """A container tells what runs, what its name stands for today, and that it restarts by itself."""
    rows = f"{'ab' * 32}|k3|vllm/vllm-openai:kimi-k3|running|Up 1 day\n"
    images = {
        "docker-image sha256:old": json.dumps([{"Id": "sha256:old", "RepoDigests": ["vllm/vllm-openai@sha256:d1"]}]),
        "docker-image vllm/vllm-openai:kimi-k3": json.dumps([{"Id": "sha256:new"}]),
    }
    found = read(**{"docker-containers": rows, "docker-inspect": json.dumps(INSPECTION), **images})
    assert found.containers is not None
    (one,) = found.containers
    assert ("sha256:old", "sha256:new") == (one.image_id, one.tag_image_id)
    assert ["vllm/vllm-openai@sha256:d1"] == one.digests
    assert ["vllm", "serve", "moonshotai/Kimi-K3"] == one.command
    assert (67108864, "nvidia", ["gpu: all"], ["/data/k3:/models:ro"]) == (
        one.shm_bytes, one.runtime, one.devices, one.mounts
    )  # fmt: skip
    assert ["NCCL_DEBUG", "NVIDIA_VISIBLE_DEVICES", "DATABASE_URL"] == one.variables
    assert [("docker", "k3", "unless-stopped", 4)] == [(r.kind, r.name, r.policy, r.restarts) for r in found.restarters]
    assert [("NCCL_DEBUG", "container k3", True)] == [
        (v.name, v.origin, v.debug) for v in found.variables if v.name == "NCCL_DEBUG"
    ]
    assert ["container"] == [change.kind for change in found.changes]


def test_no_runtime_is_not_no_container() -> None:
    """Where no runtime answers the containers are unknown; where it lists none there are none."""
    assert read(machine={}).containers is None
    assert [] == read(**{"docker-containers": ""}).containers


def test_what_restarts_by_itself() -> None:
    """systemd, Slurm and Kubernetes that would start an engine again are named with their policy."""
    found = read(
        **{
            "unit-states": "Id=vllm-k3.service\nRestart=always\nNRestarts=7\n\nId=ssh.service\nRestart=always\n",
            "slurm-job-42": "JobId=42 JobName=k3 Requeue=1 Restarts=2 BatchFlag=1",
            "pods": "NS NAME POLICY RESTARTS\nprod vllm-k3-0 Always 3,1 img\nprod web-1 Always 9 img\n",
        }
    )
    assert [
        ("systemd", "vllm-k3.service", "always", 7),
        ("slurm", "job 42", "Requeue=1", 2),
        ("kubernetes", "prod/vllm-k3-0", "Always", 4),
    ] == [(r.kind, r.name, r.policy, r.restarts) for r in found.restarters]


@pytest.mark.parametrize(
    ("variable", "value", "selected", "odd"),
    [
        ("NVIDIA_VISIBLE_DEVICES", "all", [0, 1, 2, 3], False),
        ("NVIDIA_VISIBLE_DEVICES", "void", [], True),
        ("CUDA_VISIBLE_DEVICES", "3,1", [3, 1], False),
        ("CUDA_VISIBLE_DEVICES", "", [], True),
        ("CUDA_VISIBLE_DEVICES", "-1", [], True),
        ("CUDA_VISIBLE_DEVICES", "0,9,1", [0], True),
        ("CUDA_VISIBLE_DEVICES", "1,1", [], True),
        ("CUDA_VISIBLE_DEVICES", "GPU-b1,GPU-a0", [1, 0], False),
        ("CUDA_VISIBLE_DEVICES", "GPU-", [], True),
        ("CUDA_VISIBLE_DEVICES", "MIG-7", [], True),
    ],
)
def test_visible_devices(variable: str, value: str, selected: list[int], odd: bool) -> None:
    """A *_VISIBLE_DEVICES selects what the runtimes make of it, in its own order."""
    uuids, reason = select_gpus(variable, value, GPUS)
    assert [GPUS[n].uuid for n in selected] == uuids
    assert odd == (reason is not None)


def test_visible_devices_of_unknown_gpus() -> None:
    """Without GPUs to select from the selection is unknown."""
    assert select_gpus("CUDA_VISIBLE_DEVICES", "0", None)[0] is None
