"""Who holds GPU memory: what the tools say, and what /proc knows of the process behind the number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from k3lib.logs.nvidia_smi import parse_quantity, parse_rows, parse_state
from k3lib.probe.gpus import read_amd
from k3lib.probe.nvml_answers import read_nvml_processes
from k3lib.probe.sources import Sources
from k3lib.spec.accelerators import GpuProcess

_QUERY = ("gpu", "pid", "name", "memory")


def read_gpu_processes(
    sources: Sources, booted_at: datetime | None, reasons: dict[str, str]
) -> list[GpuProcess] | None:
    """
    Every process that some tool names as holding GPU memory.

    The numbers are the host's, also when asked inside a container: an allocator's message names them the same way.

    Args:
        sources: A collection.
        booted_at: When the machine booted, for the time a process began.
        reasons: Gets the reason if nobody could be asked.

    Returns:
        A row per process and GPU; None if nobody could be asked.
    """
    state, nvml, amd = parse_state(sources.text("nvidia-smi-xml")), read_nvml_processes(sources), read_amd(sources)
    if state is None and nvml is None and amd is None and not sources.ok("nvidia-smi-processes"):
        reasons["gpu_processes"] = sources.reason("nvidia-smi-processes")
        return None
    rows = parse_rows(sources.text("nvidia-smi-processes"), _QUERY)
    named = [*(nvml or []), *map(_read_row, rows), *(state.processes if state else ()), *(amd.processes if amd else ())]
    found: dict[tuple[str | None, int], GpuProcess] = {}
    for process in named:
        key = (process.gpu, process.pid)
        found[key] = _merge(found[key], process) if key in found else process
    details = sources.data("processes") or {}
    return [_describe(one, details.get(str(one.pid)) or {}, booted_at) for one in found.values() if one.pid > 0]


def _read_row(row: dict[str, str | None]) -> GpuProcess:
    pid, memory = parse_quantity(row["pid"]), parse_quantity(row["memory"])
    held = None if memory is None else round(memory)
    return GpuProcess(pid=round(pid or 0), gpu=row["gpu"], memory_bytes=held, name=row["name"])


def _merge(known: GpuProcess, more: GpuProcess) -> GpuProcess:
    """The first source's memory stays: NVML tells bytes, nvidia-smi whole MiB."""
    memory = known.memory_bytes if known.memory_bytes is not None else more.memory_bytes
    return known.model_copy(update={"memory_bytes": memory, "name": known.name or more.name})


def _describe(process: GpuProcess, entry: dict[str, Any], booted_at: datetime | None) -> GpuProcess:
    since = entry.get("started_ticks")
    started = booted_at + timedelta(seconds=since) if booted_at and since is not None else None
    pids = entry.get("pids") or []
    return process.model_copy(
        update={
            "name": process.name or entry.get("name"),
            "argv": entry.get("argv") or None,
            "user": entry.get("user"),
            "started_at": started.astimezone(UTC).isoformat(timespec="seconds") if started else None,
            "inner_pids": pids[1:],
            "container": entry.get("container"),
            "unit": entry.get("unit"),
        }
    )
