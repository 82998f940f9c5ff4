"""What joins GPUs and nodes: topology, fabric manager, IMEX, network ports, modules for GPUDirect."""

from __future__ import annotations

import re
from typing import Any

from k3lib.probe.sources import Sources
from k3lib.spec.accelerators import Interconnect, Nic

_MODULES = (
    "nvidia_peermem",
    "nv_peer_mem",
    "gdrdrv",
    "nvidia_fs",
    "nvidia_uvm",
    "ib_core",
    "mlx5_core",
    "efa",
    "amdgpu",
)
_RATE = re.compile(r"^(\d+(?:\.\d+)?) Gb/sec")
_VIRTUAL = re.compile(
    r"^(?:lo|docker|br-|veth|cni|flannel|cali|tun|tap|virbr|kube|cilium|lxc|vxlan|dummy|ip6?tnl|sit|gre|tunl|erspan)"
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def read_interconnect(sources: Sources, reasons: dict[str, str]) -> Interconnect:
    """
    Links and network of one place.

    Args:
        sources: A collection.
        reasons: Gets reasons for what is None.
    """
    topology = sources.text("nvidia-smi-topology") or sources.text("amd-smi-topology")
    modules = _read_modules(sources)
    nics = _read_nics(sources)
    manager, imex = (read_unit_state(sources, f"nvidia-{name}.service") for name in ("fabricmanager", "imex"))
    if not topology:
        reasons["interconnect.topology"] = sources.reason("nvidia-smi-topology")
    if modules is None:
        reasons["interconnect.modules"] = sources.reason("/proc/modules")
    if nics is None:
        reasons["interconnect.nics"] = sources.reason("network")
    if manager is None:
        reasons["interconnect.fabric_manager"] = reasons["interconnect.imex"] = sources.reason("units")
    return Interconnect(
        topology=_ANSI.sub("", topology).strip() or None,
        fabric_manager=manager,
        imex=imex,
        imex_channels=_count_channels(sources),
        nics=nics,
        modules=modules,
    )


def read_unit_state(sources: Sources, name: str) -> str | None:
    """
    State of a systemd unit.

    Args:
        sources: A collection.
        name: `nvidia-imex.service`.

    Returns:
        `active`, `inactive`, `failed`, …; `absent` if systemd does not know it; None if systemd could not be asked.
    """
    if not sources.ok("units"):
        return None
    for line in sources.text("units").splitlines():
        words = line.replace("●", " ").split()
        if len(words) > 2 and words[0] == name:
            return "absent" if words[1] == "not-found" else words[2]
    return "absent"


def _read_modules(sources: Sources) -> dict[str, bool] | None:
    if not sources.ok("/proc/modules"):
        return None
    loaded = {line.split()[0] for line in sources.text("/proc/modules").splitlines() if line.strip()}
    return {name: name in loaded for name in _MODULES}


def _count_channels(sources: Sources) -> int | None:
    devices = sources.data("devices")
    if devices is None:
        return None
    return sum("nvidia-caps-imex-channels/" in path for path in devices["nodes"])


def _read_nics(sources: Sources) -> list[Nic] | None:
    data = sources.data("network")
    if data is None:
        return None
    ports = [_read_port(entry) for entry in data["ports"]]
    return ports + [_read_interface(entry) for entry in data["interfaces"] if not _VIRTUAL.match(entry["name"])]


def _read_port(entry: dict[str, Any]) -> Nic:
    rate = _RATE.match(entry.get("rate") or "")
    state = entry.get("state")
    return Nic(
        name=entry["name"],
        kind="roce" if entry.get("link_layer") == "Ethernet" else "infiniband",
        up=None if state is None else "ACTIVE" in state,
        rate_bits_per_s=round(float(rate[1]) * 1e9) if rate else None,
        firmware=entry.get("fw_ver"),
        numa=_node(entry),
    )


def _read_interface(entry: dict[str, Any]) -> Nic:
    speed, state = entry.get("speed") or "", entry.get("operstate")
    return Nic(
        name=entry["name"],
        kind="ethernet",
        up=state == "up" if state in ("up", "down") else None,  # a virtual card says "unknown"
        rate_bits_per_s=int(speed) * 1_000_000 if speed.isdigit() and int(speed) else None,
        numa=_node(entry),
    )


def _node(entry: dict[str, Any]) -> int | None:
    told = entry.get("device/numa_node") or ""
    return int(told) if told.isdigit() else None
