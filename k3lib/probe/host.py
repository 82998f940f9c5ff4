"""The machine and the place: processor, memory, limits, file systems; host or container, and what says so."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from k3lib.probe.sources import Sources
from k3lib.spec.snapshot import Host, Mount, Place

_KIB = 1024
_UNLIMITED = 1 << 60  # cgroup v1 writes a page-aligned number near 2^63 for "no limit"
_STORES = re.compile(r"^(?:/dev/shm$)|^(?!/(?:proc|sys|dev|run|etc|snap|var/lib/(?:docker|containerd|kubelet))(?:/|$))")
_RUNTIMES = ("kubepods", "docker", "libpod", "cri-containerd", "crio", "containerd", "lxc", "slurmstepd")
_RUNTIME_NAMES = {"kubepods": "kubernetes", "libpod": "podman", "cri-containerd": "containerd", "crio": "cri-o"}
_CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def read_place(sources: Sources) -> Place:
    """
    Host or container, by signs of which each is told.

    Args:
        sources: A collection.
    """
    machine: dict[str, Any] = sources.data("machine") or {}
    variables = machine.get("variables") or {}
    cgroup = sources.text("/proc/self/cgroup") + sources.text("/proc/1/cgroup")
    runtime, because = _read_runtime(cgroup, machine, variables)
    container_id = _CONTAINER_ID.search(cgroup)
    scheduler = "slurm" if "SLURM_JOB_ID" in variables else None
    if "KUBERNETES_SERVICE_HOST" in variables or machine.get("service_account"):
        scheduler, runtime = "kubernetes", "kubernetes"
        because.append("Kubernetes left its variables or its account here")
    if scheduler == "slurm":
        because.append(f"SLURM_JOB_ID is {variables['SLURM_JOB_ID']}")
    return Place(
        kind="container" if runtime else "host",
        runtime=runtime,
        container=container_id[0] if container_id and runtime else None,
        scheduler=scheduler,
        because=because or ["no sign of a container"],
    )


def _read_runtime(cgroup: str, machine: dict[str, Any], variables: dict[str, str]) -> tuple[str | None, list[str]]:
    because, runtime = [], None
    named = {"/.dockerenv": "docker", "/run/.containerenv": "podman", "/.singularity.d": "apptainer"}
    for path in machine.get("signs") or []:
        runtime = runtime or named.get(path)
        because.append(f"{path} is there")
    for word in _RUNTIMES:
        # A host's own service runs in /system.slice/docker.service, and is no container.
        if word != "slurmstepd" and re.search(rf"[/:-]{word}[/-](?!service)", cgroup):
            runtime = runtime or _RUNTIME_NAMES.get(word, word)
            because.append(f"its cgroup is named by {word}")
            break
    if variables.get("container"):
        runtime = runtime or variables["container"]
        because.append(f"the variable container is {variables['container']}")
    if "APPTAINER_CONTAINER" in variables or "SINGULARITY_CONTAINER" in variables:
        runtime = runtime or "apptainer"
        because.append("Apptainer named its image in a variable")
    return runtime, because


def read_booted_at(sources: Sources) -> datetime | None:
    """When the machine booted, by /proc/stat."""
    found = re.search(r"^btime (\d{1,11})$", sources.text("/proc/stat"), re.M)
    return datetime.fromtimestamp(int(found[1]), UTC) if found else None


def read_host(sources: Sources, reasons: dict[str, str]) -> Host:
    """
    The machine as seen from the place.

    Args:
        sources: A collection.
        reasons: Gets reasons for what is None.
    """
    machine: dict[str, Any] = sources.data("machine") or {}
    if not machine:
        reasons["host"] = sources.reason("machine")
    memory, cpu = _read_memory(sources.text("/proc/meminfo")), _read_processor(sources)
    booted, shm = read_booted_at(sources), _disks(sources).get("/dev/shm") or {}
    limit = _memory_limit(sources)
    if limit is None:
        reasons["host.memory_limit_bytes"] = "no limit, or the cgroup cannot be read"
    if "size_bytes" not in shm:
        reasons["host.shm_size_bytes"] = str(shm.get("reason") or "no /dev/shm was measured")
    synchronized = re.search(r"^NTPSynchronized=(\w+)", sources.text("clock"), re.M)
    if synchronized is None:
        reasons["host.clock_synchronized"] = sources.reason("clock")
    if booted is None:
        reasons["host.booted_at"] = sources.reason("/proc/stat")
    uptime = (sources.line("/proc/uptime") or "").split(" ")[0]
    return Host(
        name=machine.get("name"),
        machine=cpu.get("machine") or machine.get("machine"),
        system=_read_system(sources.text("/etc/os-release")),
        kernel=machine.get("kernel"),
        boot_id=sources.line("/proc/sys/kernel/random/boot_id"),
        booted_at=booted.isoformat(timespec="seconds") if booted else None,
        uptime_s=float(uptime) if re.fullmatch(r"\d+(\.\d+)?", uptime) else None,
        clock_synchronized=None if synchronized is None else synchronized[1] == "yes",
        processor=cpu.get("model"),
        processors=machine.get("processors"),
        sockets=cpu.get("sockets"),
        numa_nodes=machine.get("numa_nodes"),
        memory_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
        swap_bytes=memory.get("SwapTotal"),
        memory_limit_bytes=limit,
        processors_limit=_processors_limit(sources),
        limits=machine.get("limits") or {},
        shm_size_bytes=shm.get("size_bytes"),
        shm_free_bytes=shm.get("free_bytes"),
        mounts=_read_mounts(sources),
    )


def _read_memory(text: str) -> dict[str, int]:
    return {name: int(value) * _KIB for name, value in re.findall(r"^(\w+):\s+(\d{1,15}) kB", text, re.M)}


def _read_system(text: str) -> str | None:
    found = re.search(r"^PRETTY_NAME=\"?([^\"\n]*)", text, re.M)
    return found[1] if found else None


def _read_processor(sources: Sources) -> dict[str, Any]:
    """x86 names its model in /proc/cpuinfo; arm64 only in lscpu."""
    text, listed = sources.text("/proc/cpuinfo"), sources.text("lscpu")
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.M) or re.search(r"^Model name:\s*(.+)$", listed, re.M)
    sockets = re.search(r"^Socket\(s\):\s*(\d+)", listed, re.M) or re.search(r"^sockets: (\d+)", text, re.M)
    machine = re.search(r"^Architecture:\s*(\S+)", listed, re.M)
    return {
        "model": model[1].strip() if model else None,
        "sockets": int(sockets[1]) if sockets else None,
        "machine": machine[1] if machine else None,
    }


def _memory_limit(sources: Sources) -> int | None:
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        told = sources.line(name) or ""
        if told.isdigit() and int(told) < _UNLIMITED:
            return int(told)
    return None


def _processors_limit(sources: Sources) -> float | None:
    words = (sources.line("/sys/fs/cgroup/cpu.max") or "").split()
    if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
        return int(words[0]) / int(words[1])
    return None


def _disks(sources: Sources) -> dict[str, dict[str, Any]]:
    return {entry["path"]: entry for entry in sources.data("disks") or []}


def _read_mounts(sources: Sources) -> list[Mount]:
    disks, found = _disks(sources), {}
    for line in sources.text("/proc/mounts").splitlines():
        words = [word.replace("\\040", " ") for word in line.split(" ")]
        if len(words) >= 4 and _STORES.match(words[1]):
            size = disks.get(words[1]) or {}
            found[words[1]] = Mount(
                path=words[1], kind=words[2], device=words[0], read_only="ro" in words[3].split(","),
                size_bytes=size.get("size_bytes"), free_bytes=size.get("free_bytes"),
            )  # fmt: skip
    return list(found.values())
