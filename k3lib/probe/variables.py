"""Environment variables with their origin, and the GPUs that a *_VISIBLE_DEVICES variable selects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from k3lib.knowledge.settings import debug_variables
from k3lib.probe.containers import inspections
from k3lib.probe.sources import Sources
from k3lib.spec.accelerators import Gpu, Vendor
from k3lib.spec.snapshot import Variable, Visibility

_OWN = re.compile(r"^(?:PATH|HOSTNAME|container|K3_|KUBERNETES_SERVICE_HOST)")
_SELECTORS: dict[str, Vendor] = {
    "NVIDIA_VISIBLE_DEVICES": "nvidia",
    "CUDA_VISIBLE_DEVICES": "nvidia",
    "HIP_VISIBLE_DEVICES": "amd",
    "ROCR_VISIBLE_DEVICES": "amd",
    "GPU_DEVICE_ORDINAL": "amd",
}


def read_variables(sources: Sources) -> list[Variable]:
    """
    Variables that can change how an engine behaves, an entry per origin.

    Args:
        sources: A collection.

    Returns:
        In the order: this process, other processes, containers.
    """
    found = []
    for origin, environment in _environments(sources):
        debug = set(debug_variables(environment))
        found += [
            Variable(name=name, value=value, origin=origin, debug=f"{name}={value}" in debug)
            for name, value in environment.items()
            if not _OWN.match(name)
        ]
    return found


def read_visibility(sources: Sources, gpus: list[Gpu] | None) -> list[Visibility]:
    """
    Every *_VISIBLE_DEVICES beside the GPUs that it selects.

    Args:
        sources: A collection.
        gpus: The place's GPUs, or None if unknown.
    """
    found = []
    for origin, environment in _environments(sources):
        for name, vendor in _SELECTORS.items():
            if name in environment:
                own = None if gpus is None else [gpu for gpu in gpus if gpu.vendor == vendor and gpu.index is not None]
                selected, reason = select_gpus(name, environment[name], own)
                found.append(
                    Visibility(variable=name, value=environment[name], origin=origin, gpus=selected, reason=reason)
                )
    return found


def select_gpus(variable: str, value: str, gpus: Sequence[Gpu] | None) -> tuple[list[str] | None, str | None]:
    """
    The GPUs that a value selects, as the runtimes read it.

    CUDA takes entries until the first that it does not know, and ignores the rest; the container toolkit knows `all`,
    `none` and `void` beside them.

    Args:
        variable: Its name.
        value: Its value.
        gpus: GPUs of that vendor in the driver's order, or None if unknown.

    Returns:
        UUIDs in the order of the value, or None; and what is odd, or None.

    Source:
        CUDA C++ Programming Guide, CUDA_VISIBLE_DEVICES; NVIDIA Container Toolkit, NVIDIA_VISIBLE_DEVICES.

    >>> two = [Gpu(index=0, vendor="nvidia", uuid="GPU-aa"), Gpu(index=1, vendor="nvidia", uuid="GPU-bb")]
    >>> select_gpus("CUDA_VISIBLE_DEVICES", "1,0", two)
    (['GPU-bb', 'GPU-aa'], None)
    >>> select_gpus("CUDA_VISIBLE_DEVICES", "0,7,1", two)
    (['GPU-aa'], "'7' names no GPU here; it and what follows are ignored")
    """
    if gpus is None:
        return None, "the GPUs of this place are unknown"
    uuids = [gpu.uuid or f"index {gpu.index}" for gpu in gpus]
    if variable == "NVIDIA_VISIBLE_DEVICES":
        if value == "all":
            return uuids, None
        if value in ("", "void", "none"):
            return [], f"{value or 'an empty value'} gives the container no GPU"
    selected: list[str] = []
    for entry in value.split(","):
        uuid = _find(entry.strip(), gpus, uuids)
        if uuid is None:
            return selected, _unknown(entry.strip(), selected)
        if uuid in selected:
            return [], f"{entry.strip()!r} stands twice; CUDA then shows no GPU at all"
        selected.append(uuid)
    return selected, None


def _find(entry: str, gpus: Sequence[Gpu], uuids: list[str]) -> str | None:
    if entry.isdigit():
        return next((uuid for gpu, uuid in zip(gpus, uuids, strict=True) if gpu.index == int(entry)), None)
    if entry.startswith("MIG-"):
        known = {piece.uuid for gpu in gpus for piece in gpu.slices}
        return entry if entry in known else None
    matches = [uuid for uuid in uuids if len(entry) > 4 and uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _unknown(entry: str, selected: list[str]) -> str:
    if entry in ("", "-1", "NoDevFiles"):
        return f"{entry or 'an empty value'} hides every GPU" if not selected else f"{entry!r} ends the list"
    return f"{entry!r} names no GPU here; it and what follows are ignored"


def _environments(sources: Sources) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "this process", (sources.data("machine") or {}).get("variables") or {}
    for pid, process in (sources.data("processes") or {}).items():
        if process.get("variables"):
            yield f"process {pid}", process["variables"]
    for tool in ("docker", "podman"):
        for one in inspections(sources, tool):
            pairs = [item.partition("=") for item in (one.get("Config") or {}).get("Env") or [] if "=" in item]
            yield f"container {str(one.get('Name') or '').lstrip('/')}", {name: value for name, _, value in pairs}
