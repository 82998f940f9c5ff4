"""Containers as their runtime describes them, with the id that runs beside the id that the name stands for today."""

from __future__ import annotations

from typing import Any

from k3lib.probe.sources import Sources
from k3lib.spec.snapshot import Container

_TOOLS = ("docker", "podman")


def read_containers(sources: Sources, reasons: dict[str, str]) -> list[Container] | None:
    """
    Every container that was described.

    Args:
        sources: A collection.
        reasons: Gets the reason if no runtime could be asked.

    Returns:
        Empty if a runtime says that there is none; None if none could be asked.
    """
    if not any(sources.ok(f"{tool}-containers") for tool in _TOOLS):
        reasons["containers"] = "; ".join(sources.reason(f"{tool}-containers") for tool in _TOOLS)
        return None
    found = []
    for tool in _TOOLS:
        images = {name: _first(sources.json(f"{tool}-image {name}")) for name, _ in sources.named(f"{tool}-image ")}
        found += [_read(one, images) for one in inspections(sources, tool)]
    return found


def inspections(sources: Sources, tool: str) -> list[dict[str, Any]]:
    """What `docker inspect` described, as it stands; what one vanished container spoils, the others still tell."""
    whole = sources.json(f"{tool}-inspect")
    return [one for one in whole if isinstance(one, dict)] if isinstance(whole, list) else []


def _first(value: Any) -> dict[str, Any]:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else {}


def _read(one: dict[str, Any], images: dict[str, dict[str, Any]]) -> Container:
    config, host, state = (one.get(key) or {} for key in ("Config", "HostConfig", "State"))
    image_id, name = one.get("Image"), config.get("Image")
    running, tagged = images.get(image_id or "", {}), images.get(name or "", {})
    private = host.get("IpcMode") in (None, "", "private", "shareable")
    return Container(
        name=str(one.get("Name") or "").lstrip("/"),
        id=str(one.get("Id") or ""),
        image=name,
        image_id=image_id,
        digests=running.get("RepoDigests") or [],
        tag_image_id=tagged.get("Id"),
        image_made_at=running.get("Created"),
        created_at=one.get("Created"),
        started_at=state.get("StartedAt"),
        running=state.get("Running"),
        command=[*_words(config.get("Entrypoint")), *_words(config.get("Cmd"))],
        restart_policy=(host.get("RestartPolicy") or {}).get("Name") or "no",
        restarts=one.get("RestartCount"),
        shm_bytes=host.get("ShmSize") if private else None,
        ipc=host.get("IpcMode") or None,
        network=host.get("NetworkMode") or None,
        runtime=host.get("Runtime") or one.get("OCIRuntime"),
        devices=_devices(host),
        mounts=[_mount(mount) for mount in one.get("Mounts") or []],
        variables=[item.partition("=")[0] for item in config.get("Env") or []],
    )


def _words(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(word) for word in value or []]


def _devices(host: dict[str, Any]) -> list[str]:
    asked = []
    for request in host.get("DeviceRequests") or []:
        which = request.get("DeviceIDs") or ["all" if request.get("Count") == -1 else f"count {request.get('Count')}"]
        asked.append(f"{request.get('Driver') or 'gpu'}: {', '.join(map(str, which))}")
    return asked + [str(device.get("PathOnHost")) for device in host.get("Devices") or []]


def _mount(mount: dict[str, Any]) -> str:
    source = mount.get("Source") or mount.get("Name") or "?"
    return f"{source}:{mount.get('Destination')}" + ("" if mount.get("RW", True) else ":ro")
