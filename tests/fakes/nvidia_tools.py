"""What nvidia-smi, modinfo, lscpu and the kernel's files say of a pretend machine, in the form of driver R580."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

MIB = 1024**2
_SPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


@dataclass
class Board:
    """One pretend GPU: what the machine's file says of all, with what it says of this one."""

    index: int
    pci: str
    uuid: str
    facts: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return self.facts.get(name)


def make_boards(machine: str, nvidia: dict[str, Any]) -> list[Board]:
    """The boards of a machine, `each` laid over `gpu`."""
    each = nvidia.get("each") or {}
    return [
        Board(
            index, pci, f"GPU-{uuid.uuid5(_SPACE, f'{machine} {index}')}", {**nvidia["gpu"], **(each.get(index) or {})}
        )
        for index, pci in enumerate(nvidia["pci"])
    ]


def render_table(nvidia: dict[str, Any], boards: list[Board]) -> str:
    """The plain table."""
    head = (
        f"| NVIDIA-SMI {nvidia['driver']}              Driver Version: {nvidia['driver']}      "
        f"CUDA Version: {nvidia['cuda']}     |\n"
    )
    rows = [
        f"|   {b.index}  {b.name:<26}      On  |   {b.pci} Off |                    0 |\n"
        f"| N/A   28C    P0            {b.power_w:.0f}W / {b.power_limit_w}W |  {b.used_mib}MiB / {b.memory_mib}MiB |"
        "      0%      Default |\n"
        for b in boards
        if not b.lost
    ]
    return head + "".join(rows)


def render_list(boards: list[Board]) -> str:
    """`nvidia-smi -L`."""
    lines = []
    for b in boards:
        if b.lost:
            continue
        lines.append(f"GPU {b.index}: {b.name} (UUID: {b.uuid})\n")
        for number, piece in enumerate(b.slices or []):
            lines.append(f"  MIG {piece['profile']}     Device  {number}: (UUID: {_slice_uuid(b, number)})\n")
    return "".join(lines)


def _slice_uuid(board: Board, number: int) -> str:
    return f"MIG-{uuid.uuid5(_SPACE, board.uuid + str(number))}"


def render_rows(nvidia: dict[str, Any], boards: list[Board]) -> str:
    """The query that the collector asks."""
    return "".join(
        f"{b.index}, {b.uuid}, {b.pci}, {b.name}, {b.memory_mib} MiB, {b.used_mib} MiB, "
        f"{nvidia['driver']}, {b.capability}\n"
        for b in boards
        if not b.lost
    )


def render_processes(boards: list[Board]) -> str:
    """`--query-compute-apps`."""
    return "".join(
        f"{b.uuid}, {p['pid']}, {p['name']}, {p['mib']} MiB\n" for b in boards if not b.lost for p in b.processes or []
    )


def render_links(boards: list[Board]) -> str:
    """`nvidia-smi nvlink -s`."""
    lines = []
    for b in boards:
        if not b.lost and b.links:
            lines.append(f"GPU {b.index}: {b.name} (UUID: {b.uuid})\n")
            up = b.links if b.links_active is None else b.links_active
            lines += [f"\t Link {n}: {'53.125 GB/s' if n < up else '<inactive>'}\n" for n in range(b.links)]
    return "".join(lines)


def render_topology(boards: list[Board]) -> str:
    """`nvidia-smi topo -m`, every pair over all its NVLinks."""
    names = [f"GPU{b.index}" for b in boards]
    link = f"NV{boards[0].links}" if boards and boards[0].links else "SYS"
    rows = ["\t".join([name, *(" X " if other == name else link for other in names)]) for name in names]
    return "\n".join(["\t" + "\t".join(names), *rows, "", "Legend:", "", "  X    = Self", ""])


def render_xml(nvidia: dict[str, Any], boards: list[Board]) -> str:
    """`nvidia-smi -q -x`, the parts that are read."""
    told = "".join(_render_gpu(b) for b in boards if not b.lost)
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>Mon Nov 30 09:00:00 2026</timestamp>\n\t<driver_version>{nvidia['driver']}</driver_version>\n"
        f"\t<cuda_version>{nvidia['cuda']}</cuda_version>\n\t<attached_gpus>{len(boards)}</attached_gpus>\n"
        f"{told}</nvidia_smi_log>\n"
    )


def _render_gpu(b: Board) -> str:
    reasons = (
        "gpu_idle",
        "applications_clocks_setting",
        "sw_power_cap",
        "hw_slowdown",
        "hw_thermal_slowdown",
        "sw_thermal_slowdown",
    )
    active = b.throttles or []
    throttles = "".join(_tag(f"clocks_event_reason_{r}", "Active" if r in active else "Not Active") for r in reasons)
    fabric = b.fabric or {}
    mig = "Enabled" if b.slices else "Disabled"
    pieces = "".join(
        f"<mig_device><index>{n}</index><fb_memory_usage><total>{p['mib']} MiB</total></fb_memory_usage></mig_device>"
        for n, p in enumerate(b.slices or [])
    )
    errors = b.ecc_uncorrected or 0
    ever = b.ecc_uncorrected_ever or 0
    processes = "".join(
        f"<process_info><pid>{p['pid']}</pid><type>C</type><process_name>{p['name']}</process_name>"
        f"<used_memory>{p['mib']} MiB</used_memory></process_info>"
        for p in b.processes or []
    )
    return f"""\t<gpu id="{b.pci}">
{_tag("product_name", b.name)}{_tag("product_architecture", b.architecture)}{_tag("persistence_mode", "Enabled")}
<mig_mode>{_tag("current_mig", mig)}{_tag("pending_mig", mig)}</mig_mode><mig_devices>{pieces or "None"}</mig_devices>
{_tag("serial", "N/A")}{_tag("uuid", b.uuid)}{_tag("vbios_version", b.vbios)}
{_tag("gpu_recovery_action", b.recovery or "None")}
<pci>{_tag("pci_bus_id", b.pci)}</pci><clocks_event_reasons>{throttles}</clocks_event_reasons>
<fb_memory_usage><total>{b.memory_mib} MiB</total><reserved>{b.reserved_mib} MiB</reserved><used>{b.used_mib} MiB</used>
</fb_memory_usage>{_tag("compute_mode", "Default")}
<ecc_mode>{_tag("current_ecc", "Enabled")}{_tag("pending_ecc", "Enabled")}</ecc_mode>
<ecc_errors><volatile>{_tag("sram_correctable", "0")}{_tag("sram_uncorrectable_parity", "0")}
{_tag("sram_uncorrectable_secded", "0")}{_tag("dram_correctable", "0")}{_tag("dram_uncorrectable", errors)}</volatile>
<aggregate>{_tag("sram_uncorrectable_parity", "0")}{_tag("dram_uncorrectable", ever)}</aggregate></ecc_errors>
<remapped_rows>{_tag("remapped_row_unc", b.remapped or 0)}{_tag("remapped_row_pending", b.remap_pending or "No")}
{_tag("remapped_row_failure", b.remap_failed or "No")}</remapped_rows>
<temperature>{_tag("gpu_temp", "31 C")}</temperature>
<gpu_power_readings>{_tag("power_state", "Requested functionality has been deprecated")}
{_tag("instant_power_draw", f"{b.power_w:.2f} W")}
{_tag("current_power_limit", f"{b.power_limit_w:.2f} W")}</gpu_power_readings>
<clocks>{_tag("sm_clock", f"{b.sm_mhz} MHz")}</clocks><max_clocks>{_tag("sm_clock", f"{b.sm_max_mhz} MHz")}</max_clocks>
<fabric>{_tag("state", fabric.get("state", "N/A"))}{_tag("status", fabric.get("status", "N/A"))}
{_tag("cliqueId", fabric.get("clique", "N/A"))}{_tag("clusterUuid", fabric.get("cluster", "N/A"))}</fabric>
<supported_clocks><supported_mem_clock><value>3996 MHz</value></supported_mem_clock></supported_clocks>
<processes>{processes}</processes>
\t</gpu>
"""


def _tag(name: str, value: Any) -> str:
    return f"<{name}>{value}</{name}>"


_STATES = {"Not Started": 1, "In Progress": 2, "Completed": 3}
_BITS = {"gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8,
         "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40}  # fmt: skip


def render_nvml(nvidia: dict[str, Any], boards: list[Board]) -> str:
    """The file that the pretend NVML answers from."""
    major, _, minor = str(nvidia["cuda"]).partition(".")
    lines = [f"init {nvidia.get('init', 0)}", f"driver {nvidia['driver']}", f"nvml 13.{nvidia['driver']}"]
    lines += [f"cuda {int(major) * 1000 + int(minor) * 10}", f"gpus {len(boards)}"]
    for b in boards:
        lines += [f"gpu {b.index} {name} {value}" for name, value in _nvml_facts(b).items() if value is not None]
        if not b.lost:
            lines += [f"process {b.index} {p['pid']} {p['mib'] * MIB}" for p in b.processes or []]
    return "\n".join(lines) + "\n"


def _nvml_facts(b: Board) -> dict[str, Any]:
    if b.lost:
        return {"lost": 1}
    fabric, cluster = b.fabric or {}, str((b.fabric or {}).get("cluster", "")).replace("-", "")
    return {
        "uuid": b.uuid, "name": b.name, "pci": b.pci, "vbios": b.vbios, "capability": b.capability,
        "memory_total": (b.nvml_memory_mib or b.memory_mib) * MIB, "memory_reserved": b.reserved_mib * MIB,
        "memory_used": b.used_mib * MIB, "mig": int(bool(b.slices)), "ecc": 1,
        "ecc_uncorrected": b.ecc_uncorrected or 0,
        "ecc_uncorrected_ever": b.ecc_uncorrected_ever or 0, "remapped": b.remapped or 0,
        "remap_pending": int(b.remap_pending == "Yes"), "remap_failed": int(b.remap_failed == "Yes"), "persistence": 1,
        "compute_mode": 0, "sm_clock": b.sm_mhz, "sm_clock_max": b.sm_max_mhz, "memory_clock": 3996,
        "power": round(b.power_w * 1000), "power_limit": b.power_limit_w * 1000, "temperature": 31, "utilization": 0,
        "throttles": sum(_BITS[r] for r in b.throttles or []), "links": b.links,
        "links_active": b.links if b.links_active is None else b.links_active,
        "fabric_state": _STATES.get(fabric.get("state")), "fabric_status": 0 if fabric else None,
        "fabric_clique": fabric.get("clique"), "fabric_cluster": cluster or None,
    }  # fmt: skip
