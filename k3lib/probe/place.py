"""One view of a place as flat fields: its host, its driver, its GPUs, what joins them, who holds them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from k3lib.spec.accelerators import Driver, Gpu, GpuProcess, Interconnect
from k3lib.spec.snapshot import Snapshot

# vLLM names its processes VLLM::EngineCore and VLLM::Worker_TP0 (0.32.0 utils/system_utils.py).
_ENGINE_WORDS = re.compile(r"vllm|EngineCore|\bWorker_(?:TP|PP|DP|EP)\d", re.I)
_PASSING_FILE_SYSTEMS = {"overlay", "tmpfs", "ramfs", "squashfs", "nsfs", "devtmpfs", "iso9660"}
_LIMITS = ("memlock", "nofile", "stack")


@dataclass
class Fields:
    """Flat names with their values and, for those that are None, a reason."""

    values: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: Any, reason: str | None = None) -> None:
        """One more field."""
        self.values[name] = value
        if value is None:
            self.reasons[name] = reason or "not told"


@dataclass(frozen=True)
class OwnProcesses:
    """How the engine under study is told from an earlier one: its process by host number, the id of its container."""

    pid: int | None
    container: str | None


def put_place(fields: Fields, snapshot: Snapshot, own: OwnProcesses) -> None:
    """What one view shows of its machine."""
    _put_host(fields, snapshot)
    for driver in snapshot.drivers:
        _put_driver(fields, driver, snapshot.reasons)
    _put_gpus(fields, snapshot.gpus, snapshot.reasons.get("gpus"))
    _put_links(fields, snapshot.interconnect, snapshot.gpus or [], snapshot.reasons)
    fields.put("gpu.processes", _processes(snapshot.gpu_processes, own), snapshot.reasons.get("gpu_processes"))
    codes = [e.code for e in snapshot.kernel_events or [] if e.kind == "xid"]
    fields.put("kernel.xids", codes if snapshot.kernel_events is not None else None)
    fields.put("restarts", [f"{r.kind} {r.name}: {r.policy}" for r in snapshot.restarters])


def _put_host(fields: Fields, snapshot: Snapshot) -> None:
    host, reasons = snapshot.host, snapshot.reasons
    inside = snapshot.place.kind == "container"
    if inside:  # the name of a container is new at every start
        fields.put("session.host_name", host.name)
    else:
        fields.put("host.name", host.name)
    for name in ("machine", "system", "kernel", "processor", "processors", "numa_nodes", "memory_bytes"):
        fields.put(f"host.{name}", getattr(host, name), reasons.get(f"host.{name}"))
    fields.put("session.boot", host.boot_id)
    fields.put("limit.memory_bytes", host.memory_limit_bytes or "none")
    fields.put("limit.processors", host.processors_limit or "none")
    fields.put("limit.shm_bytes", host.shm_size_bytes, reasons.get("host.shm_size_bytes"))
    limits = {name.lower().removeprefix("rlimit_"): value for name, value in host.limits.items()}
    for name in _LIMITS:
        if name in limits:
            fields.put(f"limit.{name}", "unlimited" if limits[name] is None else limits[name])
    for mount in host.mounts:
        if mount.kind not in _PASSING_FILE_SYSTEMS:
            fields.put(f"mount.{mount.path}", f"{mount.kind} {mount.device}{' read-only' if mount.read_only else ''}")


def _put_driver(fields: Fields, driver: Driver, reasons: Mapping[str, str]) -> None:
    prefix = f"driver.{driver.vendor}."
    for name in ("loaded", "library", "asked", "on_disk", "cuda", "flavour", "rocm"):
        value = getattr(driver, name)
        if value is not None or name in ("loaded", "library", "asked"):
            fields.put(prefix + name, value, reasons.get(prefix + name) or driver.error)
    if active := sorted(folder for folder, on_path in driver.compatibility.items() if on_path):
        fields.put(prefix + "compatibility", active)


def _put_gpus(fields: Fields, gpus: list[Gpu] | None, reason: str | None) -> None:
    if gpus is None:
        for name in ("gpus", "gpu.order", "gpu.mode"):
            fields.put(name, None, reason)
        return
    answering = [gpu for gpu in gpus if gpu.lost is None]
    # By UUID and not by index: an index can change at a reboot.
    by_uuid = sorted(answering, key=_key_of)
    shown = ("uuid", "name", "memory_total_bytes", "capability")
    fields.put("gpus", [{name: getattr(gpu, name) for name in shown} for gpu in by_uuid])
    ordered = sorted(answering, key=lambda gpu: gpu.index if gpu.index is not None else len(gpus))
    fields.put("gpu.order", [_key_of(gpu) for gpu in ordered])
    modes = ("ecc", "mig", "compute_mode", "power_limit_w", "firmware")
    fields.put("gpu.mode", {_key_of(gpu): {name: getattr(gpu, name) for name in modes} for gpu in by_uuid})
    fields.put("gpu.lost", {_key_of(gpu): gpu.lost for gpu in gpus if gpu.lost})
    fields.put("gpu.errors", {_key_of(gpu): what for gpu in answering if (what := list(_errors(gpu)))})
    fields.put("gpu.throttles", {_key_of(gpu): gpu.throttles for gpu in answering if gpu.throttles})
    fields.put("gpu.memory_used_bytes", {_key_of(gpu): gpu.memory_used_bytes for gpu in by_uuid})
    fields.put("gpu.clocks_hz", {_key_of(gpu): gpu.sm_clock_hz for gpu in by_uuid})


def _key_of(gpu: Gpu) -> str:
    return gpu.uuid or gpu.pci or f"index {gpu.index}"


def _errors(gpu: Gpu) -> Iterator[str]:
    if gpu.ecc_uncorrected:
        yield f"{gpu.ecc_uncorrected} uncorrected ECC errors"
    if gpu.repair_pending:
        yield "a repair waits for a reset"
    if gpu.repair_failed:
        yield "a repair failed"
    if gpu.recovery:
        yield gpu.recovery


def _put_links(fields: Fields, links: Interconnect, gpus: list[Gpu], reasons: Mapping[str, str]) -> None:
    for name in ("fabric_manager", "imex", "imex_channels"):
        fields.put(f"link.{name}", getattr(links, name), reasons.get(f"interconnect.{name}"))
    matrix = hashlib.sha256(links.topology.encode()).hexdigest() if links.topology else None
    fields.put("link.topology_sha256", matrix, reasons.get("interconnect.topology"))
    # Virtual Ethernet comes and goes with every container; what carries an engine's traffic does not.
    carrying = [nic for nic in links.nics or [] if nic.kind != "ethernet"]
    rates = [f"{nic.name} {nic.kind} {'up' if nic.up else 'down'} {nic.rate_bits_per_s}" for nic in carrying]
    fields.put("link.nics", sorted(rates) if links.nics is not None else None, reasons.get("interconnect.nics"))
    loaded = sorted(name for name, is_loaded in (links.modules or {}).items() if is_loaded)
    fields.put("link.modules", loaded if links.modules is not None else None, reasons.get("interconnect.modules"))
    if any(gpu.links for gpu in gpus):
        fields.put("link.nvlink", {_key_of(gpu): f"{gpu.links_active}/{gpu.links}" for gpu in gpus})
    if any(gpu.fabric for gpu in gpus):
        fields.put("link.fabric", {_key_of(gpu): gpu.fabric.model_dump() for gpu in gpus if gpu.fabric})


def _processes(processes: list[GpuProcess] | None, own: OwnProcesses) -> list[dict[str, Any]] | None:
    if processes is None:
        return None
    return [
        {"pid": p.pid, "name": p.name, "memory_bytes": p.memory_bytes, "gpu": p.gpu, "role": _role_of(p, own)}
        for p in processes
    ]


def _role_of(process: GpuProcess, own: OwnProcesses) -> str:
    """`engine` for the one under study, `vllm` for another engine, `other` for a stranger."""
    if own.pid is not None and process.pid == own.pid:
        return "engine"
    if own.container is not None and process.container == own.container:
        return "engine"
    words = " ".join([process.name or "", *(process.argv or [])])
    return "vllm" if _ENGINE_WORDS.search(words) else "other"
