"""
What one place (a host, a container, a node) looked like at one moment.

The stand-alone collector gives the raw text of its sources as JSON, `Collected`; `k3lib.probe.snapshot` reads that into
a `Snapshot`. Raw and read are kept apart, so that a better reader can read an old collection again.
Absent is None, with the reason in `reasons` under the field's name; what each source said, or why it did not, stands in
`sources`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from k3lib.spec.accelerators import Disagreement, Driver, Gpu, GpuProcess, Interconnect
from k3lib.spec.model import Fact


class Source(Fact):
    """
    One thing that the collector looked at.

    Args:
        asked: The command line, or the path.
        ok: Whether it answered.
        reason: Why not: `not on PATH`, `no answer within 15 s`, `ended with 9: …`, `permission denied`.
        took_s: Seconds.
        root_would_help: It failed, or is partial, for want of root.
        text: Raw text, secrets hidden; None for structured sources or none.
        data: Structured answer, or None.
    """

    asked: str
    ok: bool
    reason: str | None = None
    took_s: float | None = None
    root_would_help: bool = False
    text: str | None = None
    data: Any = None


class Collected(Fact):
    """
    The JSON of the collector.

    Args:
        collector: Version of its format; 1.
        taken_at: Wall clock when it began, ISO 8601 with offset.
        took_s: Seconds.
        uid: User that ran it.
        sources: Name to source.
    """

    collector: int
    taken_at: str
    took_s: float
    uid: int | None = None
    sources: dict[str, Source]


class Place(Fact):
    """
    Where the collector ran.

    Args:
        kind: `host` or `container`.
        runtime: `docker`, `podman`, `containerd`, `kubernetes`, `apptainer`, `lxc`, or None.
        container: Container id, or None.
        scheduler: `slurm`, `kubernetes`, or None.
        because: What says so, one sentence per sign.
    """

    kind: Literal["host", "container"]
    runtime: str | None = None
    container: str | None = None
    scheduler: str | None = None
    because: list[str] = Field(default_factory=list)


class Mount(Fact):
    """
    A file system in use.

    Args:
        path: Where it is mounted.
        kind: `ext4`, `nfs4`, `overlay`, `tmpfs`.
        device: What is mounted.
        read_only: Whether it refuses writes.
        size_bytes, free_bytes: As statvfs tells a user who is not root; None if not asked or no answer.
    """

    path: str
    kind: str
    device: str
    read_only: bool = False
    size_bytes: int | None = None
    free_bytes: int | None = None


class Host(Fact):
    """
    The machine as seen from the place.

    Args:
        name: Host name.
        machine: `x86_64`, `aarch64`.
        system: `Ubuntu 24.04.3 LTS`.
        kernel: Release.
        boot_id: Identity of this boot.
        booted_at: ISO 8601.
        uptime_s: Seconds since boot.
        clock_synchronized: Whether the kernel says so.
        processor: Model.
        processors: Logical ones online.
        sockets, numa_nodes: How many.
        memory_bytes, memory_available_bytes, swap_bytes: Of the machine.
        memory_limit_bytes: The cgroup's; None with a reason if there is none.
        processors_limit: The cgroup's, in processors.
        limits: RLIMITs of the collector, soft; name to number, `unlimited` as None.
        shm_size_bytes, shm_free_bytes: /dev/shm.
        mounts: File systems that a model, an image or a cache can stand on.
    """

    name: str | None = None
    machine: str | None = None
    system: str | None = None
    kernel: str | None = None
    boot_id: str | None = None
    booted_at: str | None = None
    uptime_s: float | None = None
    clock_synchronized: bool | None = None
    processor: str | None = None
    processors: int | None = None
    sockets: int | None = None
    numa_nodes: int | None = None
    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_bytes: int | None = None
    memory_limit_bytes: int | None = None
    processors_limit: float | None = None
    limits: dict[str, int | None] = Field(default_factory=dict)
    shm_size_bytes: int | None = None
    shm_free_bytes: int | None = None
    mounts: list[Mount] = Field(default_factory=list)


class Container(Fact):
    """
    A container as its runtime describes it.

    Args:
        name, id: Its name and id.
        image: Name it was started by, `vllm/vllm-openai:kimi-k3`.
        image_id: Immutable id of what runs, `sha256:…`.
        digests: Registry digests of that image, `repo@sha256:…`.
        tag_image_id: Id that the name stands for today; other than image_id if the tag was pulled again since.
        image_made_at, created_at, started_at: ISO 8601, or None.
        running: Whether it runs.
        command: Entry point and arguments, secrets hidden.
        restart_policy: `no`, `always`, `unless-stopped`, `on-failure`.
        restarts: How often it was restarted.
        shm_bytes: Size of its /dev/shm, or None where it shares the host's.
        ipc: `private`, `host`, …
        network: `bridge`, `host`, …
        runtime: `runc`, `nvidia`.
        devices: GPU requests and device nodes.
        mounts: `source:destination`, `:ro` where read-only.
        variables: Names of its environment, all of them.
    """

    name: str
    id: str
    image: str | None = None
    image_id: str | None = None
    digests: list[str] = Field(default_factory=list)
    tag_image_id: str | None = None
    image_made_at: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    running: bool | None = None
    command: list[str] = Field(default_factory=list)
    restart_policy: str | None = None
    restarts: int | None = None
    shm_bytes: int | None = None
    ipc: str | None = None
    network: str | None = None
    runtime: str | None = None
    devices: list[str] = Field(default_factory=list)
    mounts: list[str] = Field(default_factory=list)
    variables: list[str] = Field(default_factory=list)


class Variable(Fact):
    """
    An environment variable that can change how an engine behaves.

    Args:
        name: Its name.
        value: Its value; `<hidden>` for a secret.
        origin: `this process`, `process 4121`, `container k3`.
        debug: A debug variable with a value that makes it one: it keeps a trial out of every series.
    """

    name: str
    value: str
    origin: str
    debug: bool = False


class Visibility(Fact):
    """
    Which GPUs a process under one *_VISIBLE_DEVICES variable sees.

    Args:
        variable: `CUDA_VISIBLE_DEVICES`.
        value: As set.
        origin: Whose environment.
        gpus: UUIDs in the order that a process numbers them; None if it cannot be told.
        reason: Why not, or what is odd about the value.
    """

    variable: str
    value: str
    origin: str
    gpus: list[str] | None = None
    reason: str | None = None


class Software(Fact):
    """
    Versions of one Python environment, asked of its own interpreter.

    Args:
        python: Path of the interpreter.
        origin: Why this one: `--python`, `process 4121`, `vllm on PATH`.
        version: `3.12.3`.
        packages: Distribution to version.
        torch_cuda, torch_hip: What torch was built for, or None.
        reason: Why nothing is known, or None.
    """

    python: str
    origin: str
    version: str | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    torch_cuda: str | None = None
    torch_hip: str | None = None
    reason: str | None = None


class KernelEvent(Fact):
    """
    A line of the kernel's log that explains failures.

    Args:
        kind: `xid`, `oom-kill`, `driver-load`, `driver-error`, `hardware-error`.
        at: ISO 8601, or None where the line has only seconds since boot and the boot time is unknown.
        code: Xid number, or None.
        pci: Bus address, or None.
        pid: Process it names, by host number, or None.
        text: The line.
    """

    kind: Literal["xid", "oom-kill", "driver-load", "driver-error", "hardware-error"]
    at: str | None = None
    code: int | None = None
    pci: str | None = None
    pid: int | None = None
    text: str


class Change(Fact):
    """
    Something that changed on the machine in the days before.

    Args:
        at: ISO 8601; without offset where the log has none (local time of the machine).
        kind: `package`, `boot`, `driver-load`, `image`, `container`, `unit`, `file`, `job`.
        what: One line.
        source: Which log or file says so.
    """

    at: str
    kind: Literal["package", "boot", "driver-load", "image", "container", "unit", "file", "job"]
    what: str
    source: str


class Restarter(Fact):
    """
    Something that starts an engine again by itself, and so hides or mixes failures.

    Args:
        kind: `docker`, `systemd`, `slurm`, `kubernetes`.
        name: Container, unit, job or pod.
        policy: `always`, `Requeue=1`, `on-failure`.
        restarts: How often it did, or None.
    """

    kind: Literal["docker", "systemd", "slurm", "kubernetes"]
    name: str
    policy: str
    restarts: int | None = None


class Snapshot(Fact):
    """
    One place at one moment.

    Args:
        taken_at: Wall clock, ISO 8601 with offset.
        took_s: Seconds that the look took.
        as_root: Whether root looked.
        place, host: Where.
        drivers: NVIDIA's and AMD's, those of which there is any trace; empty if neither.
        gpus: In the driver's order; empty if a driver says that there is none, None if nobody could be asked.
        gpu_processes: Who holds GPU memory; None if nobody could be asked.
        disagreements: Where two sources differ; empty is right.
        interconnect: Links, fabric, network.
        containers: Those that the runtime shows; None if it could not be asked.
        variables: Environment variables that matter, an entry per origin.
        visibility: *_VISIBLE_DEVICES beside the GPUs they select.
        software: Python environments asked.
        kernel_events: Newest last; None if the kernel's log cannot be read.
        changes: The last days, oldest first.
        restarters: Automatic restarts found; empty if none was found where one could look.
        reasons: Field to why it is None or partial.
        root_would_add: Fields or sources that root would add.
        sources: Every source, without its text.
    """

    taken_at: str
    took_s: float
    as_root: bool | None = None
    place: Place
    host: Host
    drivers: list[Driver] = Field(default_factory=list)
    gpus: list[Gpu] | None = None
    gpu_processes: list[GpuProcess] | None = None
    disagreements: list[Disagreement] = Field(default_factory=list)
    interconnect: Interconnect = Field(default_factory=Interconnect)
    containers: list[Container] | None = None
    variables: list[Variable] = Field(default_factory=list)
    visibility: list[Visibility] = Field(default_factory=list)
    software: list[Software] = Field(default_factory=list)
    kernel_events: list[KernelEvent] | None = None
    changes: list[Change] = Field(default_factory=list)
    restarters: list[Restarter] = Field(default_factory=list)
    reasons: dict[str, str] = Field(default_factory=dict)
    root_would_add: list[str] = Field(default_factory=list)
    sources: dict[str, Source] = Field(default_factory=dict)

    def driver(self, vendor: Literal["nvidia", "amd"]) -> Driver | None:
        """The driver of one vendor, or None if there is no trace of it."""
        return next((driver for driver in self.drivers if driver.vendor == vendor), None)
