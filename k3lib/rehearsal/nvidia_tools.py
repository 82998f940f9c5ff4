"""
What nvidia-smi prints of the pretend machine: the table, the list, the state as XML, queries as CSV.

Source: `nvidia-smi` of R580, document type v12 of `-q -x`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from k3lib.knowledge.hardware import Driver, Machine

_SPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
_BUSES = (0x1A, 0x40, 0x62, 0x73, 0x9A, 0xC0, 0xE2, 0xF3)
_UNKNOWN_FIELD = 2


@dataclass(frozen=True)
class Holder:
    """A process that holds memory of one GPU: its id, its command line, MiB."""

    pid: int
    command: str
    mib: int


@dataclass(frozen=True)
class Board:
    """
    One pretend GPU.

    Args:
        index: Its number on this node.
        name, architecture, capability: What the vendor's tool says of it.
        total_mib, reserved_mib: Memory, and what the driver keeps.
        power_w: Power limit.
        seed: Makes its UUID, with the index.
        holders: Who holds memory.
    """

    index: int
    name: str
    architecture: str
    capability: str
    total_mib: int
    reserved_mib: int
    power_w: int
    seed: str
    holders: tuple[Holder, ...] = ()

    @property
    def uuid(self) -> str:
        """Stable, and made up."""
        return f"GPU-{uuid.uuid5(_SPACE, f'{self.seed} {self.index}')}"

    @property
    def bus(self) -> str:
        """PCI address."""
        return f"00000000:{_BUSES[self.index % len(_BUSES)]:02X}:00.0"

    @property
    def used_mib(self) -> int:
        """Held by all processes."""
        return sum(holder.mib for holder in self.holders)


def make_boards(machine: Machine, holders: dict[int, tuple[Holder, ...]]) -> list[Board]:
    """
    The GPUs of one node.

    Args:
        machine: Over all nodes.
        holders: Who holds memory, by index.
    """
    gpu = machine.gpu
    return [
        Board(
            index=index,
            name=gpu.product,
            architecture=gpu.architecture,
            capability=gpu.capability,
            total_mib=round(gpu.memory_gib * 1024),
            reserved_mib=round(machine.context_gib * 1024),
            power_w=gpu.power_w,
            seed=machine.name,
            holders=holders.get(index, ()),
        )
        for index in range(machine.gpus // machine.nodes)
    ]


def answer_nvidia_smi(words: Sequence[str], driver: Driver, boards: Sequence[Board]) -> tuple[str, int]:
    """
    What nvidia-smi prints, and its exit code.

    Args:
        words: After the program's name.
        driver: Loaded.
        boards: GPUs that it can see.
    """
    if not boards:
        return "No devices were found\n", 6
    if not words:
        return render_table(driver, boards), 0
    if list(words) == ["-L"]:
        return "".join(f"GPU {one.index}: {one.name} (UUID: {one.uuid})\n" for one in boards), 0
    if sorted(words) == ["-q", "-x"]:
        return render_xml(driver, boards), 0
    if list(words) == ["topo", "-m"]:
        return render_topology(boards), 0
    query, _, fields = words[0].partition("=")
    style = words[1].partition("=")[2].split(",") if len(words) > 1 else []
    if query == "--query-gpu":
        return _render_query(fields.split(","), [_gpu_fields(one, driver) for one in boards], style)
    if query == "--query-compute-apps":
        rows = [_holder_fields(one, holder) for one in boards for holder in one.holders]
        return _render_query(fields.split(","), rows, style)
    return f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{' '.join(words)}\n", 1


def render_table(driver: Driver, boards: Sequence[Board]) -> str:
    """The plain table."""
    lines = [
        "+-----------------------------------------------------------------------------------------+",
        f"| NVIDIA-SMI {driver.nvml:<23}Driver Version: {driver.module:<15}CUDA Version: {driver.cuda:<9}|",
        "|-----------------------------------------+------------------------+----------------------+",
    ]
    for one in boards:
        memory = f"{one.used_mib:>7}MiB / {one.total_mib:>6}MiB"
        lines.append(f"| {one.index:>3}  {one.name:<30} On  |   {one.bus} Off |                    0 |")
        lines.append(f"| N/A   31C    P0    181W / {one.power_w:>5}W     |{memory:>23} |      0%      Default |")
    lines.append("| Processes:                                                                              |")
    held = [(one, holder) for one in boards for holder in one.holders]
    for one, holder in held:
        lines.append(
            f"| {one.index:>4}   N/A  N/A {holder.pid:>12}      C   {holder.command[:30]:<30} {holder.mib:>8}MiB |"
        )
    if not held:
        lines.append("|  No running processes found                                                             |")
    lines.append("+-----------------------------------------------------------------------------------------+")
    return "\n".join(lines) + "\n"


def render_topology(boards: Sequence[Board]) -> str:
    """Every pair over all its NVLinks."""
    names = [f"GPU{one.index}" for one in boards]
    rows = ["\t".join([name, *(" X " if other == name else "NV18" for other in names)]) for name in names]
    return "\n".join(["\t" + "\t".join(names), *rows, ""])


def render_xml(driver: Driver, boards: Sequence[Board]) -> str:
    """The state as XML: what a reader of it needs, and no more."""
    told = "".join(_render_gpu(one) for one in boards)
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<driver_version>{driver.module}</driver_version>\n\t<cuda_version>{driver.cuda}</cuda_version>\n"
        f"\t<attached_gpus>{len(boards)}</attached_gpus>\n{told}</nvidia_smi_log>\n"
    )


def _render_gpu(one: Board) -> str:
    memory = {"total": one.total_mib, "reserved": one.reserved_mib, "used": one.used_mib}
    memory["free"] = one.total_mib - one.reserved_mib - one.used_mib
    processes = "".join(
        f"<process_info><pid>{holder.pid}</pid><type>C</type><process_name>{escape(holder.command)}</process_name>"
        f"<used_memory>{holder.mib} MiB</used_memory></process_info>"
        for holder in one.holders
    )
    parts = {
        "product_name": one.name,
        "product_architecture": one.architecture,
        "persistence_mode": "Enabled",
        "mig_mode": "<current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig>",
        "uuid": one.uuid,
        "minor_number": one.index,
        "pci": f"<pci_bus_id>{one.bus}</pci_bus_id>",
        "clocks_event_reasons": "<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>",
        "fb_memory_usage": "".join(f"<{key}>{value} MiB</{key}>" for key, value in memory.items()),
        "compute_mode": "Default",
        "ecc_mode": "<current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc>",
        "temperature": "<gpu_temp>31 C</gpu_temp>",
        "gpu_power_readings": f"<current_power_limit>{one.power_w:.2f} W</current_power_limit>",
        "processes": processes,
    }
    body = "".join(f"\t\t<{key}>{value}</{key}>\n" for key, value in parts.items())
    return f'\t<gpu id="{one.bus}">\n{body}\t</gpu>\n'


def _gpu_fields(one: Board, driver: Driver) -> dict[str, str]:
    return {
        "index": str(one.index),
        "uuid": one.uuid,
        "pci.bus_id": one.bus,
        "name": one.name,
        "memory.total": f"{one.total_mib} MiB",
        "memory.reserved": f"{one.reserved_mib} MiB",
        "memory.used": f"{one.used_mib} MiB",
        "memory.free": f"{one.total_mib - one.reserved_mib - one.used_mib} MiB",
        "driver_version": driver.module,
        "compute_cap": one.capability,
        "power.limit": f"{one.power_w:.2f} W",
        "utilization.gpu": "0 %",
        "temperature.gpu": "31",
    }


def _holder_fields(one: Board, holder: Holder) -> dict[str, str]:
    name = holder.command.split(" ")[0]
    return {"gpu_uuid": one.uuid, "pid": str(holder.pid), "process_name": name, "used_memory": f"{holder.mib} MiB"}


def _render_query(fields: Sequence[str], rows: Sequence[dict[str, str]], style: Sequence[str]) -> tuple[str, int]:
    known = rows[0] if rows else dict.fromkeys(fields, "")
    for field in fields:
        if field not in known:
            return f'Field "{field}" is not a valid field to query.\n\n', _UNKNOWN_FIELD
    plain = "nounits" in style
    lines = [] if "noheader" in style else [", ".join(fields)]
    lines += [
        ", ".join(row[field].split(" ")[0] if plain and field != "name" else row[field] for field in fields)
        for row in rows
    ]
    return "".join(f"{line}\n" for line in lines), 0
