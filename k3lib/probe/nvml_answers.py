"""NVML's numbers as the collector keeps them, read into GPUs: bit masks and enumerations get their names."""

from __future__ import annotations

from typing import Any

from k3lib.devices.nvml import name_throttles
from k3lib.logs.nvidia_smi import normalize_pci
from k3lib.probe.sources import Sources
from k3lib.spec.accelerators import Gpu, GpuFabric, GpuProcess

_FABRIC_STATES = {0: None, 1: "Not Started", 2: "In Progress", 3: "Completed"}  # nvmlGpuFabricState_t
_COMPUTE_MODES = {0: "Default", 2: "Prohibited", 3: "Exclusive_Process"}  # nvmlComputeMode_t


def read_nvml_gpus(sources: Sources) -> list[Gpu] | None:
    """
    The GPUs of NVML, in its order; one that is lost has only its place and its reason.

    Args:
        sources: A collection.

    Returns:
        None if NVML did not answer.
    """
    data = sources.data("nvml")
    return None if data is None else [_read_gpu(entry) for entry in data["gpus"]]


def read_nvml_processes(sources: Sources) -> list[GpuProcess] | None:
    """Who holds GPU memory by NVML; None if it did not answer."""
    data = sources.data("nvml")
    if data is None:
        return None
    return [
        GpuProcess(pid=process["pid"], gpu=entry.get("uuid"), memory_bytes=process.get("memory"))
        for entry in data["gpus"]
        for process in entry.get("processes") or []
    ]


def _read_gpu(entry: dict[str, Any]) -> Gpu:
    def scaled(key: str, by: float) -> Any:
        value = entry.get(key)
        return None if value is None else round(value * by, 3) if by < 1 else value * int(by)

    remapped, links, fabric = entry.get("remapped"), entry.get("links") or {}, entry.get("fabric")
    persistence, mask = entry.get("persistence"), entry.get("throttles")
    return Gpu(
        index=None if entry.get("lost") else entry.get("index"),
        vendor="nvidia",
        lost=entry.get("lost"),
        pci=normalize_pci(entry.get("pci")),
        memory_total_bytes=entry.get("memory_total"),
        memory_used_bytes=entry.get("memory_used"),
        repair_pending=bool(remapped[2]) if remapped else None,
        repair_failed=bool(remapped[3]) if remapped else None,
        compute_mode=_COMPUTE_MODES.get(entry.get("compute_mode", -1)),
        persistence=None if persistence is None else bool(persistence),
        sm_clock_hz=scaled("sm_clock_mhz", 1e6),
        sm_clock_max_hz=scaled("sm_clock_max_mhz", 1e6),
        power_w=scaled("power_mw", 1e-3),
        power_limit_w=scaled("power_limit_mw", 1e-3),
        throttles=None if mask is None else name_throttles(mask),
        links_active=links.get("active"),
        links=links.get("total"),
        fabric=_read_fabric(fabric) if fabric else None,
        firmware=entry.get("vbios"),
        **{
            key: entry.get(key)
            for key in (
                "uuid",
                "name",
                "capability",
                "mig",
                "ecc",
                "ecc_uncorrected",
                "ecc_uncorrected_ever",
                "temperature_c",
            )
        },
    )


def _read_fabric(entry: dict[str, Any]) -> GpuFabric | None:
    state = _FABRIC_STATES.get(entry.get("state", 0))
    if state is None:
        return None
    hexes = str(entry.get("cluster") or "")
    parts = (hexes[:8], hexes[8:12], hexes[12:16], hexes[16:20], hexes[20:])
    status = entry.get("status")
    return GpuFabric(
        state=state,
        status="Success" if status == 0 else f"NVML error {status}",
        cluster="-".join(parts) if hexes.strip("0") else None,
        clique=None if entry.get("clique") is None else str(entry["clique"]),
    )
