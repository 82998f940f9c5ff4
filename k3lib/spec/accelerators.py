"""GPUs, their driver and what joins them, as a look at one place found them. Absent is None, with a reason."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from k3lib.spec.model import Fact

Vendor = Literal["nvidia", "amd"]


class GpuSlice(Fact):
    """
    One MIG device, or one partition of an AMD card.

    Args:
        uuid: `MIG-…`, or None where it is not told.
        profile: `3g.71gb`, or None.
        memory_bytes: Its share, bytes, or None.
    """

    uuid: str | None = None
    profile: str | None = None
    memory_bytes: int | None = None


class GpuFabric(Fact):
    """
    A GPU's place in an NVLink fabric, as NVML tells it.

    Args:
        state: `Completed`, `In Progress`, `Not Started`; None where the board has no fabric.
        status: `Success`, or the error of the registration.
        cluster: UUID of the NVLink domain; None for the all-zero one.
        clique: Partition inside the domain.
    """

    state: str | None = None
    status: str | None = None
    cluster: str | None = None
    clique: str | None = None


class Gpu(Fact):
    """
    One GPU. Its identity is the UUID; the index is only its place in an order that can change.

    Args:
        index: Place in the order of the driver, from 0, or None for one that does not answer.
        uuid: `GPU-…`, or AMD's UUID, or None.
        vendor: `nvidia` or `amd`.
        name: As the driver says, `NVIDIA B300 SXM6 AC`.
        pci: Bus address, `0000:1a:00.0`, lower case, four digits of domain.
        memory_total_bytes: What the driver reports, bytes.
        memory_used_bytes: In use by anybody, bytes, the driver's own reserve left out where it is told apart.
        capability: Compute capability `10.3`, or AMD's target `gfx950`.
        ecc: Whether ECC is on.
        ecc_uncorrected: Uncorrected errors since the driver was loaded.
        ecc_uncorrected_ever: The same over the life of the board.
        repair_pending: A row remap or page retirement waits for a reset.
        repair_failed: A row could not be remapped.
        recovery: What the driver asks for, `GPU Reset`, `Node Reboot`; None if nothing or not told.
        mig: Whether the board is cut up (MIG on, or an AMD compute partition other than SPX).
        slices: Its parts; empty if none.
        compute_mode: `Default`, `Exclusive_Process`, `Prohibited`.
        persistence: Whether persistence mode is on.
        sm_clock_hz, sm_clock_max_hz: Present and highest clock.
        power_w, power_limit_w: Present draw and enforced limit.
        temperature_c: Of the GPU.
        utilization_fraction: Share of the last period in which a kernel ran, 0 to 1.
        throttles: What holds the clock down now, the driver's names; idle is none. None if not told.
        links_active, links: NVLink or XGMI links that are up, and in all.
        fabric: Its place in an NVLink fabric, or None.
        numa: NUMA node next to it.
        firmware: VBIOS version.
        lost: Why it does not answer though the machine has it, or None.
    """

    index: int | None
    vendor: Vendor
    uuid: str | None = None
    name: str | None = None
    pci: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    capability: str | None = None
    ecc: bool | None = None
    ecc_uncorrected: int | None = None
    ecc_uncorrected_ever: int | None = None
    repair_pending: bool | None = None
    repair_failed: bool | None = None
    recovery: str | None = None
    mig: bool | None = None
    slices: list[GpuSlice] = Field(default_factory=list)
    compute_mode: str | None = None
    persistence: bool | None = None
    sm_clock_hz: int | None = None
    sm_clock_max_hz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    utilization_fraction: float | None = None
    throttles: list[str] | None = None
    links_active: int | None = None
    links: int | None = None
    fabric: GpuFabric | None = None
    numa: int | None = None
    firmware: str | None = None
    lost: str | None = None


class GpuSample(Fact):
    """
    One GPU at one moment of a trial.

    Args:
        uuid: Which one; AMD's bus address where it has no UUID.
        memory_used_bytes: In use by anybody, the driver's own reserve left out, bytes.
        memory_total_bytes: As the driver reports, bytes.
        utilization_fraction: Share of the last period in which a kernel ran, 0 to 1.
        sm_clock_hz: Present clock.
        power_w: Present draw.
        temperature_c: Of the GPU.
        throttles: What holds the clock down, the driver's names; None if not told.
    """

    uuid: str
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization_fraction: float | None = None
    sm_clock_hz: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttles: list[str] | None = None


class GpuProcess(Fact):
    """
    A process that holds GPU memory.

    Args:
        gpu: UUID of the GPU, or None.
        pid: As the driver numbers it: the host's number, also when asked inside a container.
        memory_bytes: What it holds, or None where the driver does not tell.
        name: Its program as the driver says.
        argv: Its command, secrets hidden; None where /proc does not show it.
        user: Its owner, or None.
        started_at: ISO 8601, or None.
        inner_pids: Its numbers in nested PID namespaces, innermost last; empty if there are none.
        container: Container id, or None.
        unit: systemd unit, or None.
    """

    pid: int
    gpu: str | None = None
    memory_bytes: int | None = None
    name: str | None = None
    argv: list[str] | None = None
    user: str | None = None
    started_at: str | None = None
    inner_pids: list[int] = Field(default_factory=list)
    container: str | None = None
    unit: str | None = None


class Disagreement(Fact):
    """
    Two sources that tell a different story of one thing.

    Args:
        what: Field, `memory_total_bytes`, `order`, `count`.
        gpu: UUID, or None for the machine.
        values: What each source says, source to text.
    """

    what: str
    gpu: str | None
    values: dict[str, str]


class Driver(Fact):
    """
    A driver: what is loaded, what is installed, what programs here talk to. Installed is not loaded (R-12).

    Args:
        vendor: `nvidia` or `amd`.
        loaded: Version of the kernel module in memory.
        flavour: `open` or `proprietary`, or None.
        on_disk: Version of the module that the next load would take.
        library: Version of the user-space library, by the name of its file.
        asked: Version that the tool (nvidia-smi, amd-smi) or NVML answered.
        cuda: Highest CUDA that the loaded driver supports, `13.0`.
        cuda_here: CUDA version that libcuda answers to programs here; above `cuda` with a compatibility package.
        compatibility: Folders of forward-compatibility libraries found, and whether they are on the library path.
        rocm: ROCm version, AMD only.
        packages: Installed packages of it, `name version`.
        error: What the tool said when it could not answer.
    """

    vendor: Vendor
    loaded: str | None = None
    flavour: str | None = None
    on_disk: str | None = None
    library: str | None = None
    asked: str | None = None
    cuda: str | None = None
    cuda_here: str | None = None
    compatibility: dict[str, bool] = Field(default_factory=dict)
    rocm: str | None = None
    packages: list[str] = Field(default_factory=list)
    error: str | None = None

    @property
    def versions(self) -> dict[str, str]:
        """The versions that must be one: loaded, on_disk, library, asked; those that are known."""
        named = {"loaded": self.loaded, "on_disk": self.on_disk, "library": self.library, "asked": self.asked}
        return {name: version for name, version in named.items() if version}


class Nic(Fact):
    """
    One network interface, or one port of an InfiniBand or RoCE adapter.

    Args:
        name: `mlx5_0/1`, `eth0`.
        kind: `infiniband`, `roce` or `ethernet`.
        up: Whether the link is up, or None.
        rate_bits_per_s: Link rate, or None.
        firmware: Version, or None.
        numa: NUMA node, or None.
    """

    name: str
    kind: Literal["infiniband", "roce", "ethernet"]
    up: bool | None = None
    rate_bits_per_s: int | None = None
    firmware: str | None = None
    numa: int | None = None


class Interconnect(Fact):
    """
    What joins GPUs and nodes.

    Args:
        topology: Matrix as `nvidia-smi topo -m` or `amd-smi topology` prints it, or None.
        fabric_manager: State of its unit, `active`, `inactive`, `absent`; None if it cannot be told.
        imex: State of the IMEX unit, the same words.
        imex_channels: Device nodes of IMEX channels, or None.
        nics: Interfaces and ports, or None.
        modules: Kernel modules that matter for GPUDirect and RDMA, name to whether they are loaded; None if unknown.
    """

    topology: str | None = None
    fabric_manager: str | None = None
    imex: str | None = None
    imex_channels: int | None = None
    nics: list[Nic] | None = None
    modules: dict[str, bool] | None = None
