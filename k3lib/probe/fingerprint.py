"""
From snapshots to a fingerprint: identity (must match inside a series), factor (may differ by one), noise (ignored).

Which part a field belongs to is knowledge (`knowledge/fingerprint.yaml`); here is only what a snapshot says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3lib.knowledge.fingerprint import field_facts
from k3lib.probe.place import Fields, OwnProcesses, put_place
from k3lib.spec.fingerprint import Fingerprint, plain_name
from k3lib.spec.launch import INHERITED
from k3lib.spec.snapshot import Container, Snapshot, Software
from k3lib.spec.vocabulary import Part

CONTAINER = "container"
"""The view from inside the engine's container."""

_BENEATH_A_MODEL = dict.fromkeys(
    ("host", "gpus", "gpu", "driver", "link", "limit", "mount", "software", "environment", "image", "container"),
    "the machine beneath a rehearsal is no part of it",
)


@dataclass(frozen=True)
class Subject:
    """
    The engine whose place is described.

    Args:
        model: Repository or folder of the weights, as the engine is given it.
        revision: Commit of the repository, or None.
        release: What the engine's program says of its version, or None.
        program: The engine's program, or None.
        container: Name of its container, or None.
        pid: Its process by host number, or None.
        inherits: Names of our own variables that would reach it.
        modelled: It is a rehearsal, so the machine under it is no part of its identity.
    """

    model: str
    revision: str | None = None
    release: str | None = None
    program: str | None = None
    container: str | None = None
    pid: int | None = None
    inherits: tuple[str, ...] = INHERITED
    modelled: bool = False


def compose_fingerprint(subject: Subject, views: Mapping[str, Snapshot]) -> Fingerprint:
    """
    The fingerprint of an engine's place.

    Args:
        subject: The engine.
        views: The main host's snapshot under `""`, that of the inside of the container under `container`, further
            hosts under `node-2`, `node-3`, …; views of the same moment belong together.

    Returns:
        Flat names; a view other than the main host's begins its names.
    """
    fields = Fields()
    _put_engine(fields, subject, views)
    container = find_container(views.get(""), subject.container) if subject.container else None
    own = OwnProcesses(subject.pid, container.id if container else None)
    for view, snapshot in views.items():
        there = Fields()
        put_place(there, snapshot, own)
        prefix = f"{view}/" if view else ""
        fields.values |= {prefix + name: value for name, value in there.values.items()}
        fields.reasons |= {prefix + name: reason for name, reason in there.reasons.items()}
    parts: dict[Part, dict[str, Any]] = {part: {} for part in Part}
    for name, value in fields.values.items():
        if (part := _part_of(name, subject.modelled)) is not None:
            parts[part][name] = value
    main = views.get("") or next(iter(views.values()), None)
    return Fingerprint(
        identity=parts[Part.IDENTITY],
        factor=parts[Part.FACTOR],
        noise=parts[Part.NOISE],
        # Of a field that was left out no reason is kept; a family (`software`) has no field of its own.
        reasons={
            name: reason
            for name, reason in fields.reasons.items()
            if name not in fields.values or any(name in part for part in parts.values())
        }
        | (_BENEATH_A_MODEL if subject.modelled else {}),
        taken_at=main.taken_at if main else None,
    )


def probe_model(name: str) -> dict[str, Any]:
    """
    Shard list with sizes, quantisation and architecture of a model folder; names only, weights are not read.

    Args:
        name: A folder; a repository's name leaves everything None.

    Returns:
        `model.shards`, `model.shards_sha256`, `model.architecture`, `model.quantization`, None where unknown.
    """
    folder = Path(name)
    shards = [f"{p.name} {p.stat().st_size}" for p in sorted(folder.glob("*.safetensors"))] if folder.is_dir() else []
    config: dict[str, Any] = {}
    with contextlib.suppress(OSError, json.JSONDecodeError):  # a repository's name, or a folder without it
        config = json.loads((folder / "config.json").read_bytes())
    return {
        "model.shards": shards or None,
        "model.shards_sha256": hashlib.sha256("\n".join(shards).encode()).hexdigest() if shards else None,
        "model.architecture": (config.get("architectures") or [None])[0],
        "model.quantization": (config.get("quantization_config") or {}).get("quant_method"),
    }


def describe_fingerprint(fingerprint: Mapping[str, Any]) -> str:
    """The fingerprint in one line, for the head of a notebook."""
    known = Fingerprint.model_validate(fingerprint)
    gpus = known.value("gpus")
    hardware = f"{len(gpus)}× {gpus[0]['name']}" if gpus else "no GPU seen"
    shards = known.value("model.shards")
    weights = f"{len(shards)} shard(s) {known.value('model.shards_sha256')[:12]}" if shards else "weights not read"
    return " · ".join(
        [
            str(known.value("engine.release") or "release unknown"),
            hardware,
            str(known.value("host.machine") or "machine unknown"),
            weights,
            f"fingerprint {known.digest[:12]}",
        ]
    )


def _part_of(name: str, modelled: bool) -> Part | None:
    """The part of a field; under a modelled engine the machine is noise, and its GPUs are nobody's business."""
    facts = field_facts(name)
    plain = plain_name(name)
    if not modelled or facts.part is Part.FACTOR or plain.startswith(("engine.", "model.")):
        return facts.part
    return Part.NOISE if plain.startswith(("host.", "session.", "environment.", "shell.")) else None


def _put_engine(fields: Fields, subject: Subject, views: Mapping[str, Snapshot]) -> None:
    """What describes the engine and not one view of it: release, weights, image, packages, variables."""
    fields.put("engine.release", subject.release, "the program did not tell its version")
    fields.put("program", subject.program, "no program of ours is started")
    fields.put("model.name", subject.model)
    fields.put("model.revision", subject.revision, "the campaign pins no revision")
    for name, value in probe_model(subject.model).items():
        fields.put(name, value, "the weights are no folder on this machine, or do not say")
    _put_image(fields, subject, views)
    software = _engine_software(views)
    if software is None:
        fields.reasons["software"] = "no environment with vLLM was asked"
    else:
        fields.values |= {f"software.{package}": version for package, version in software.packages.items()}
        fields.put("software.python", software.version)
        fields.put("software.torch_built_for", software.torch_cuda or software.torch_hip, "torch does not say")
    if views:
        fields.values |= _variables(subject, views)
    else:
        fields.reasons["environment"] = "no place was looked at"


def _put_image(fields: Fields, subject: Subject, views: Mapping[str, Snapshot]) -> None:
    if subject.container is None:
        return
    container = find_container(views.get(""), subject.container)
    if container is None:
        host = views.get("")
        why = host.reasons.get("containers") if host else None
        fields.reasons |= dict.fromkeys(("image", "container"), why or f"no container {subject.container} is known")
        return
    fields.put("image.tag", container.image)
    fields.put("image.id", container.image_id)
    fields.put("image.digest", sorted(container.digests) or None, "the image has no registry digest")
    fields.put("image.tag_points_to", container.tag_image_id)
    for name in ("shm_bytes", "ipc", "network", "runtime"):
        fields.put(f"container.{name}", getattr(container, name))
    fields.put("container.devices", sorted(container.devices))
    fields.put("container.mounts", sorted(container.mounts))
    fields.put("container.command", container.command)


def find_container(host: Snapshot | None, name: str) -> Container | None:
    """A container by its name, or by the beginning of its id; None if the runtime does not show it."""
    known = (host.containers if host else None) or []
    return next((c for c in known if c.name.lstrip("/") == name or (len(name) >= 8 and c.id.startswith(name))), None)


def _engine_software(views: Mapping[str, Snapshot]) -> Software | None:
    """The Python environment that the engine really runs in: the container's before the host's, one with vLLM in it."""
    ordered = sorted(views, key=lambda view: view != CONTAINER)
    every = [software for view in ordered for software in views[view].software]
    return next((s for s in every if any(name.startswith("vllm") for name in s.packages)), None)


def _variables(subject: Subject, views: Mapping[str, Snapshot]) -> dict[str, str]:
    """Variables that reach the engine as `environment.NAME`; those of our own shell that do not as `shell.NAME`."""
    found: dict[str, str] = {}
    for variable in views[""].variables if "" in views else []:
        if variable.origin == "this process":
            part = "environment" if variable.name in subject.inherits else "shell"
            found[f"{part}.{variable.name}"] = variable.value
    # What is nearer to the engine wins: the container's configuration, then the process itself.
    inside = [v for v in (views[CONTAINER].variables if CONTAINER in views else []) if v.origin == "this process"]
    near = [v for v in (views[""].variables if "" in views else []) if v.origin == f"container {subject.container}"]
    own = [v for snapshot in views.values() for v in snapshot.variables if v.origin == f"process {subject.pid}"]
    return found | {f"environment.{v.name}": v.value for v in (*inside, *near, *own)}
