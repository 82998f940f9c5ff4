"""The week before, reconstructed: packages, boots, drivers, images, units, files, jobs. And what restarts by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from k3lib.logs.kernel import parse_kernel_log
from k3lib.probe.host import read_booted_at
from k3lib.probe.software import answer_of
from k3lib.probe.sources import Sources
from k3lib.spec.snapshot import Change, Container, KernelEvent, Restarter

_DAYS = timedelta(days=8)
_MOST = 300
_RELEVANT = re.compile(
    r"nvidia|cuda|nccl|rocm|amdgpu|hip|docker|containerd|podman|runc|linux-image|linux-modules|kernel|mlnx|doca|rdma"
    r"|ibverbs|slurm|kube|vllm|fabric|imex|gdrcopy|efa\b|^python3(?:\.\d+)?(?::|$)|^libc6(?::|$)|^glibc(?::|$)"
    r"|^systemd(?::|$)",
    re.I,
)
_DPKG = re.compile(r"^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) (install|upgrade|remove|purge) (\S+) (\S+) (\S+)", re.M)
_DNF = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) \S+ (Installed|Upgrade|Upgraded|Removed|Erase): (\S+)", re.M)
_BOOT = re.compile(r"^\s*-?\d+\s+[0-9a-f]{32}\s+\w{3} (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)", re.M)
_UNIT_TIME = re.compile(r"^\w{3} (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)")
_POD = re.compile(r"^(\S+)\s+(\S+)\s+(Always|OnFailure|Never)\s+(\S+)", re.M)


def read_kernel_events(sources: Sources, reasons: dict[str, str]) -> list[KernelEvent] | None:
    """
    What the kernel's log says, from the journal if it can be read, else from its ring buffer.

    Args:
        sources: A collection.
        reasons: Gets the reason if the log cannot be read.

    Returns:
        In order; None if the log cannot be read, or holds no line at all that we could have seen.
    """
    for name in ("journal", "dmesg", "dmesg-seconds"):
        if sources.ok(name) and sources.text(name).strip():
            return parse_kernel_log(sources.text(name), read_booted_at(sources))
    silent = next((name for name in ("dmesg-seconds", "journal") if sources.ok(name)), None)
    reasons["kernel_events"] = (
        f"{silent} holds no line of GPUs, memory or hardware; no proof of quiet, they may be hidden from this user"
        if silent
        else f"{sources.reason('journal')}; {sources.reason('dmesg-seconds')}"
    )
    return None


def read_changes(
    sources: Sources, containers: list[Container] | None, events: list[KernelEvent] | None
) -> list[Change]:
    """
    What changed in the last days, by every log and clock that could be read.

    Args:
        sources: A collection.
        containers: Containers described.
        events: Events of the kernel's log.

    Returns:
        Oldest first, the latest 300.
    """
    every = [
        *_packages(sources), *_wheels(sources), *_boots(sources), *_drivers(events or []),
        *_images(containers or []), *_units(sources), *_files(sources), *_jobs(sources),
    ]  # fmt: skip
    since = (datetime.fromisoformat(sources.collected.taken_at) - _DAYS).strftime("%Y-%m-%d")
    recent = {change.model_dump_json(): change for change in every if change.at[:10] >= since}
    return sorted(recent.values(), key=lambda change: change.at)[-_MOST:]


def read_restarters(sources: Sources, containers: list[Container] | None) -> list[Restarter]:
    """
    What would start an engine again by itself.

    Args:
        sources: A collection.
        containers: Containers described.

    Returns:
        Empty if none was found where one could look.
    """
    return [
        *_restarting_containers(containers or []), *_restarting_units(sources), *_requeued_jobs(sources),
        *_restarting_pods(sources),
    ]  # fmt: skip


def _packages(sources: Sources) -> Iterator[Change]:
    for log in ("/var/log/dpkg.log.1", "/var/log/dpkg.log"):
        for day, clock, action, name, old, new in _DPKG.findall(sources.text(log)):
            if _RELEVANT.search(name):
                yield Change(at=f"{day}T{clock}", kind="package", what=f"{action} {name} {old} → {new}", source=log)
    for at, action, name in _DNF.findall(sources.text("/var/log/dnf.rpm.log")):
        if _RELEVANT.search(name):
            yield Change(at=at, kind="package", what=f"{action.lower()} {name}", source="/var/log/dnf.rpm.log")


def _wheels(sources: Sources) -> Iterator[Change]:
    """Python packages by the hour in which their folders were made: `pip install` keeps no log."""
    for path, source in sources.named("python "):
        answer = answer_of(source.text or "") or {}
        hours: dict[int, list[tuple[float, str]]] = {}
        for name, made in sorted((answer.get("made") or {}).items()):
            version = (answer.get("packages") or {}).get(name)
            hours.setdefault(int(made // 3600), []).append((made, f"{name} {version}"))
        for installed in hours.values():
            at = datetime.fromtimestamp(max(made for made, _ in installed), UTC).isoformat(timespec="seconds")
            what = f"installed: {', '.join(name for _, name in installed)}"
            yield Change(at=at, kind="package", what=what[:400], source=f"{path}: times of its folders")


def _boots(sources: Sources) -> Iterator[Change]:
    for day, clock in _BOOT.findall(sources.text("boots")):
        yield Change(at=f"{day}T{clock}", kind="boot", what="the machine booted", source="journalctl --list-boots")
    booted = read_booted_at(sources)
    if booted and not sources.text("boots").strip():
        at = booted.isoformat(timespec="seconds")
        yield Change(at=at, kind="boot", what="the machine booted", source="/proc/stat")


def _drivers(events: list[KernelEvent]) -> Iterator[Change]:
    for event in events:
        if event.kind == "driver-load" and event.at:
            yield Change(at=event.at, kind="driver-load", what=event.text[:160], source="kernel log")


def _images(containers: list[Container]) -> Iterator[Change]:
    for one in containers:
        if one.created_at:
            what = f"container {one.name} made from {one.image}"
            yield Change(at=one.created_at, kind="container", what=what, source="docker inspect")
        if one.image_made_at:
            what = f"image {one.image} built, {(one.image_id or '')[:19]}"
            yield Change(at=one.image_made_at, kind="image", what=what, source="docker image inspect")


def _blocks(text: str) -> Iterator[dict[str, str]]:
    for block in text.split("\n\n"):
        pairs = [line.partition("=") for line in block.splitlines() if "=" in line]
        if pairs:
            yield {name: value for name, _, value in pairs}


def _units(sources: Sources) -> Iterator[Change]:
    for unit in _blocks(sources.text("unit-states")):
        found = _UNIT_TIME.match(unit.get("ActiveEnterTimestamp", ""))
        if found:
            what = f"{unit.get('Id')} became {unit.get('ActiveState')}"
            yield Change(at=f"{found[1]}T{found[2]}", kind="unit", what=what, source="systemctl show")


def _files(sources: Sources) -> Iterator[Change]:
    for entry in sources.data("given-files") or []:
        if entry.get("modified"):
            yield Change(at=entry["modified"], kind="file", what=f"{entry['path']} written", source="time of the file")


def _jobs(sources: Sources) -> Iterator[Change]:
    for line in sources.text("slurm-history").splitlines():
        fields = line.split("|")
        if len(fields) >= 7 and re.match(r"\d{4}-", fields[4]):
            what = f"job {fields[0]} {fields[1]} of {fields[2]}: {fields[3]}, exit {fields[6]}, until {fields[5]}"
            yield Change(at=fields[4], kind="job", what=what, source="sacct")


def _restarting_containers(containers: list[Container]) -> Iterator[Restarter]:
    for one in containers:
        if one.restart_policy not in (None, "", "no"):
            yield Restarter(kind="docker", name=one.name, policy=one.restart_policy, restarts=one.restarts)


def _restarting_units(sources: Sources) -> Iterator[Restarter]:
    engines = {process.get("unit") for process in (sources.data("processes") or {}).values()}
    for unit in _blocks(sources.text("unit-states")):
        name, policy, count = unit.get("Id", ""), unit.get("Restart", "no"), unit.get("NRestarts", "")
        if policy != "no" and (name in engines or re.search(r"vllm|\bray\b|k3", name)):
            yield Restarter(kind="systemd", name=name, policy=policy, restarts=int(count) if count.isdigit() else None)


def _requeued_jobs(sources: Sources) -> Iterator[Restarter]:
    for job, source in sources.named("slurm-job-"):
        text = source.text or ""
        requeue, restarts = re.search(r"\bRequeue=(\d+)", text), re.search(r"\bRestarts=(\d+)", text)
        if requeue and requeue[1] != "0":
            yield Restarter(
                kind="slurm", name=f"job {job}", policy=requeue[0], restarts=int(restarts[1]) if restarts else None
            )


def _restarting_pods(sources: Sources) -> Iterator[Restarter]:
    for namespace, name, policy, restarts in _POD.findall(sources.text("pods")):
        if policy != "Never" and re.search(r"vllm|kimi|k3", name, re.I):
            counts = [int(count) for count in restarts.split(",") if count.isdigit()]
            yield Restarter(
                kind="kubernetes", name=f"{namespace}/{name}", policy=policy, restarts=sum(counts) if counts else None
            )
