"""
What amd-smi and rocm-smi print as JSON: GPUs, who holds them, versions.

Comes from `amd-smi list|static|metric|process|version --json` (24.6 to 26.2 read: a plain list, or a list under
`gpu_data`) and `rocm-smi … --json` (ROCm 4.3 to 6.0). Sample lines:

    [{"gpu": 0, "bdf": "0000:05:00.0", "uuid": "75ff75a3-0000-1000-80e3-fd74aab3f72c", "partition_id": 0}]
    {"gpu_data": [{"gpu": 0, "asic": {"market_name": "AMD Instinct MI355X", "target_graphics_version": "gfx950"}}]}
    {"gpu": 0, "mem_usage": {"total_vram": {"value": 294896, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}}}
    {"card0": {"Unique ID": "0x79cc…", "PCI Bus": "0000:83:00.0", "VRAM Total Memory (B)": "34342961152"}}

amd-smi writes MB and means 1024² bytes: an MI300X of 206,141,652,992 B reads 196592 MB.
Empty input, or no JSON, means that nothing is known.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from k3lib.logs.nvidia_smi import normalize_pci
from k3lib.spec.accelerators import Gpu, GpuProcess, GpuSlice

_UNITS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "MHZ": 1_000_000, "W": 1, "C": 1}
_UNTOLD = {"N/A", "NA", "", "UNKNOWN"}
_WHOLE_CARD = "SPX"


@dataclass(frozen=True)
class AmdState:
    """
    What the tools said together.

    Args:
        driver: Version of amdgpu, or None.
        rocm: ROCm version, or None.
        gpus: In the tool's order; empty if it says that there is none.
        processes: Who holds memory on them.
    """

    driver: str | None
    rocm: str | None
    gpus: tuple[Gpu, ...]
    processes: tuple[GpuProcess, ...]


def parse_json(text: str) -> Any:
    """
    The first JSON value of an output that can begin with warnings.

    Returns:
        The value, or None.

    >>> parse_json('WARNING: no permission\\n[{"gpu": 0}]')
    [{'gpu': 0}]
    """
    for found in re.finditer(r"^\s*[\[{]", text, re.M):
        try:
            return json.JSONDecoder().raw_decode(text[found.end() - 1 :])[0]
        except (ValueError, RecursionError):
            continue
    return None


def parse_amd_smi(listed: str, static: str, metric: str, process: str, version: str) -> AmdState | None:
    """
    Reads the answers of amd-smi together.

    Args:
        listed, static, metric, process, version: What each subcommand printed with `--json`; empty if nothing.

    Returns:
        The state; None if neither list nor static can be read.
    """
    first, second = _by_gpu(listed), _by_gpu(static)
    if first is None and second is None:
        return None
    measured = _by_gpu(metric) or {}
    order = list(dict.fromkeys([*(first or {}), *(second or {})]))
    gpus = [_read_gpu(n, (first or {}).get(n, {}), (second or {}).get(n, {}), measured.get(n, {})) for n in order]
    said = parse_json(version)
    about: dict[str, Any] = next(iter(_dicts(said)), {})
    drivers = [
        _text(_at(entry, "driver", "version") or _at(entry, "driver", "driver_version"))
        for entry in (second or {}).values()
    ]
    return AmdState(
        driver=_text(about.get("amdgpu_version")) or next((d for d in drivers if d), None),
        rocm=_text(about.get("rocm_version")),
        gpus=tuple(gpus),
        processes=tuple(_read_processes(process, {gpu.index: gpu.uuid for gpu in gpus})),
    )


def parse_rocm_smi(text: str) -> AmdState | None:
    """
    Reads rocm-smi's JSON, for machines whose ROCm is older than amd-smi.

    Returns:
        The state without processes; None if there is no JSON.
    """
    whole = parse_json(text)
    if not isinstance(whole, dict):
        return None
    cards = [
        (int(key[4:]), value) for key, value in whole.items() if re.match(r"card\d+$", key) and isinstance(value, dict)
    ]
    driver = _at(whole, "system", "Driver version")
    gpus = tuple(_read_card(index, {k.lower(): v for k, v in card.items()}) for index, card in sorted(cards))
    return AmdState(_text(driver), None, gpus, ())


def _dicts(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        value = value.get("gpu_data", [value])
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _by_gpu(text: str) -> dict[int, dict[str, Any]] | None:
    value = parse_json(text)
    if value is None:
        return None
    return {entry["gpu"]: entry for entry in _dicts(value) if isinstance(entry.get("gpu"), int)}


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip().upper() not in _UNTOLD else None


def _number(value: Any) -> float | None:
    """A number, or `{"value": 294896, "unit": "MB"}`, in base units."""
    unit = 1
    if isinstance(value, dict):
        unit = _UNITS.get(str(value.get("unit", "")).upper(), 1)
        value = value.get("value")
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value) * unit
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 1e18 else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else round(number)


def _first(*values: Any) -> Any:
    return next((value for value in values if value not in (None, "N/A", {}, [])), None)


def _read_gpu(index: int, listed: dict[str, Any], static: dict[str, Any], metric: dict[str, Any]) -> Gpu:
    partition = _text(_at(static, "partition", "compute_partition")) or _text(
        _at(static, "partition", "accelerator_partition")
    )
    clock, power = metric.get("clock"), metric.get("power")
    return Gpu(
        index=index,
        vendor="amd",
        uuid=_text(listed.get("uuid")),
        name=_text(_at(static, "asic", "market_name")),
        pci=normalize_pci(_text(_first(listed.get("bdf"), _at(static, "bus", "bdf")))),
        memory_total_bytes=_whole(_first(_at(metric, "mem_usage", "total_vram"), _at(static, "vram", "size"))),
        memory_used_bytes=_whole(_at(metric, "mem_usage", "used_vram")),
        capability=_text(_at(static, "asic", "target_graphics_version")),
        ecc=_ecc(_at(static, "ras", "ecc_block_state")),
        ecc_uncorrected=_whole(_at(metric, "ecc", "total_uncorrectable_count")),
        mig=None if partition is None else partition != _WHOLE_CARD,
        slices=[GpuSlice(profile=partition)] if partition not in (None, _WHOLE_CARD) else [],
        sm_clock_hz=_whole(_at(clock, "gfx_0", "clk")),
        sm_clock_max_hz=_whole(_at(clock, "gfx_0", "max_clk")),
        power_w=_number(_first(_at(power, "socket_power"), _at(power, "current_socket_power"))),
        power_limit_w=_number(
            _first(
                _at(static, "limit", "socket_power"), _at(static, "limit", "ppt0", "socket_power_limit"),
                _at(static, "limit", "power_cap"),
            )
        ),
        temperature_c=_number(_at(metric, "temperature", "hotspot")),
        utilization_fraction=_share(_at(metric, "usage", "gfx_activity")),
        throttles=_throttles(metric.get("throttle")),
        numa=_whole(_at(static, "numa", "node")),
        firmware=_text(_first(_at(static, "ifwi", "version"), _at(static, "vbios", "version"))),
    )  # fmt: skip


def _share(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else number / 100


def _ecc(state: Any) -> bool | None:
    words = [str(word).upper() for word in state.values()] if isinstance(state, dict) else []
    return "ENABLED" in words if words else None


def _throttles(group: Any) -> list[str] | None:
    if not isinstance(group, dict):
        return None
    told = {key: value for key, value in group.items() if key.endswith("_status") and isinstance(value, str)}
    if not told:
        return None
    return [
        key.removesuffix("_status").removesuffix("_violation")
        for key, value in told.items()
        if value.upper() == "ACTIVE"
    ]


def _read_processes(text: str, uuids: dict[int | None, str | None]) -> list[GpuProcess]:
    found = []
    for index, entry in (_by_gpu(text) or {}).items():
        listed = entry.get("process_list")
        for one in listed if isinstance(listed, list) else []:
            about = _at(one, "process_info")
            pid = _whole(_at(about, "pid"))
            if pid is not None:
                memory = _whole(_first(_at(about, "memory_usage", "vram_mem"), _at(about, "mem_usage")))
                name = _text(_at(about, "name"))
                found.append(GpuProcess(pid=pid, gpu=uuids.get(index), memory_bytes=memory, name=name))
    return found


def _read_card(index: int, card: dict[str, Any]) -> Gpu:
    partition = _text(card.get("compute partition"))
    return Gpu(
        index=index,
        vendor="amd",
        uuid=_text(card.get("unique id")),
        name=_text(_first(card.get("card series"), card.get("device name"), card.get("card model"))),
        pci=normalize_pci(_text(card.get("pci bus"))),
        memory_total_bytes=_whole(card.get("vram total memory (b)")),
        memory_used_bytes=_whole(card.get("vram total used memory (b)")),
        capability=_text(card.get("gfx version")),
        mig=None if partition is None else partition != _WHOLE_CARD,
        slices=[GpuSlice(profile=partition)] if partition not in (None, _WHOLE_CARD) else [],
        temperature_c=_number(card.get("temperature (sensor junction) (c)")),
        numa=_whole(card.get("(topology) numa node")),
        firmware=_text(card.get("vbios version")),
    )
