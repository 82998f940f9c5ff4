"""From snapshots to a fingerprint: the same facts make the same digest, and every field lands in its part."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from k3lib.judge.conditions import find_conditions
from k3lib.probe.fingerprint import Subject, compose_fingerprint, describe_fingerprint, probe_model
from k3lib.spec.fingerprint import Fingerprint
from k3lib.spec.snapshot import Snapshot

ENGINE = Subject(model="m", release="0.33.0", program="vllm", container="k3", pid=4121)


def snapshot(**changes: Any) -> Snapshot:
    """A host with eight GPUs and one container."""
    gpus = [{"index": n, "vendor": "nvidia", "uuid": f"GPU-{7 - n}", "name": "NVIDIA B300"} for n in range(8)]
    whole = {
        "taken_at": "2026-11-20T08:00:00+00:00", "took_s": 1.0, "place": {"kind": "host"},
        "host": {"name": "n1", "kernel": "6.8", "mounts": [
            {"path": "/", "kind": "ext4", "device": "/dev/vda"}, {"path": "/run", "kind": "tmpfs", "device": "tmpfs"}]},
        "drivers": [{"vendor": "nvidia", "loaded": "580.95", "library": "580.95", "asked": "580.95"}],
        "gpus": gpus, "gpu_processes": [],
        "containers": [{"name": "/k3", "id": "c0ffee12", "image": "repo:tag", "image_id": "sha256:a1"}],
    } | changes  # fmt: skip
    return Snapshot.model_validate(whole)


def compose(subject: Subject = ENGINE, **changes: Any) -> Fingerprint:
    """The fingerprint of that host with something changed."""
    return compose_fingerprint(subject, {"": snapshot(**changes)})


def test_the_order_of_collection_does_not_count() -> None:
    """GPUs and mounts in another order, other clocks, another moment: the same digest."""
    here = snapshot()
    assert here.gpus is not None
    gpus = [gpu.model_copy(update={"sm_clock_hz": 1_965_000_000, "temperature_c": 70.0}) for gpu in here.gpus]
    random.Random(1).shuffle(gpus)
    mounts = list(reversed(here.host.mounts))
    again = here.model_copy(
        update={"gpus": gpus, "taken_at": "x", "host": here.host.model_copy(update={"mounts": mounts})}
    )
    assert compose().digest == compose_fingerprint(ENGINE, {"": again}).digest


def test_gpus_are_ordered_by_uuid_and_their_order_is_kept_apart() -> None:
    """An index can change at a reboot: identity goes by UUID, the logical order is a field of its own."""
    found = compose()
    assert [f"GPU-{n}" for n in range(8)] == [gpu["uuid"] for gpu in found.identity["gpus"]]
    assert [f"GPU-{7 - n}" for n in range(8)] == found.identity["gpu.order"]


def test_what_is_absent_is_none_with_a_reason() -> None:
    """Every None has its reason, and a source that answered nothing leaves no zero."""
    found = compose(gpus=None, drivers=[], reasons={"gpus": "nvidia-smi: not on PATH"})
    every = found.identity | found.factor | found.noise
    assert "nvidia-smi: not on PATH" == found.reasons["gpus"]
    assert set() == {name for name, value in every.items() if value is None} - found.reasons.keys()
    assert "gpu.lost" not in every


def test_passing_file_systems_are_no_identity() -> None:
    """A tmpfs or an overlay comes and goes with every container."""
    assert ["mount./"] == [name for name in compose().identity if name.startswith("mount.")]


@pytest.mark.parametrize(
    ("process", "kinds"),
    [
        ({"pid": 4121, "name": "VLLM::Worker_TP0"}, []),
        ({"pid": 9, "name": "VLLM::Worker_TP0", "container": "c0ffee12"}, []),
        ({"pid": 9, "name": "VLLM::Worker_TP0"}, ["leftover-process"]),
        ({"pid": 9, "name": "python", "argv": ["python", "train.py"]}, ["foreign-process"]),
    ],
)
def test_the_engine_under_study_is_no_neighbour(process: dict[str, Any], kinds: list[str]) -> None:
    """Its own process and container may hold memory; an earlier engine and a stranger may not."""
    assert kinds == [condition.kind for condition in find_conditions(compose(gpu_processes=[process]))]


def test_only_variables_that_reach_the_engine_are_identity() -> None:
    """Our shell's stay outside, the container's and the process's come in, the nearest wins."""
    found = compose(
        variables=[
            {"name": "NCCL_ALGO", "value": "Ring", "origin": "this process"},
            {"name": "NCCL_PROTO", "value": "LL", "origin": "container k3"},
            {"name": "NCCL_PROTO", "value": "Simple", "origin": "process 4121"},
            {"name": "NCCL_DEBUG", "value": "TRACE", "origin": "container other"},
        ]
    )
    assert {"environment.NCCL_PROTO": "Simple"} == {
        name: value for name, value in found.identity.items() if name.startswith("environment.")
    }
    assert "Ring" == found.noise["shell.NCCL_ALGO"]


def test_a_modelled_engine_has_no_machine_in_its_identity() -> None:
    """Under a rehearsal the laptop is noise, and its GPUs are nobody's business."""
    found = compose(Subject(model="m", release="0.33.0+rehearsal", modelled=True))
    assert {"engine", "model"} == {name.split(".")[0] for name in found.identity}
    assert "gpus" not in found.identity | found.factor | found.noise


def test_a_container_view_has_names_of_its_own() -> None:
    """What the container sees stands beside what its host sees, and its own name is no identity."""
    inside = snapshot(place={"kind": "container", "container": "c0ffee12"}, host={"name": "c0ffee12"})
    found = compose_fingerprint(ENGINE, {"": snapshot(), "container": inside})
    assert found.identity["gpus"] == found.identity["container/gpus"]
    assert "container/host.name" not in found.identity
    assert ["", "container"] == found.views()


def test_weights_are_listed_and_not_read(tmp_path: Path) -> None:
    """Names and sizes make the identity of a folder; a repository's name leaves it unknown."""
    (tmp_path / "model-00001.safetensors").write_bytes(b"abc")
    (tmp_path / "config.json").write_text('{"architectures": ["KimiK3"]}')
    found = probe_model(str(tmp_path))
    assert ["model-00001.safetensors 3"] == found["model.shards"]
    assert "KimiK3" == found["model.architecture"]
    assert {None} == set(probe_model("moonshotai/Kimi-K3").values())


def test_a_fingerprint_has_one_line() -> None:
    """Release, hardware, weights and the digest, for the head of a notebook."""
    line = describe_fingerprint(compose().model_dump())
    assert line.startswith("0.33.0 · 8× NVIDIA B300 · ")
    assert compose().digest[:12] in line
