"""What amd-smi says of a pretend machine, in the form of version 26.2 (a list under `gpu_data`)."""

from __future__ import annotations

import json
import uuid
from typing import Any

_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


def render_answers(machine: str, amd: dict[str, Any]) -> dict[str, str]:
    """The subcommands that the collector asks, by their words."""
    gpus = list(enumerate(amd["pci"]))
    listed = [
        {"gpu": n, "bdf": pci, "uuid": str(uuid.uuid5(_SPACE, f"{machine} {n}")), "partition_id": 0} for n, pci in gpus
    ]
    static = [
        {
            "gpu": n,
            "asic": {"market_name": amd["name"], "target_graphics_version": amd["target"], "num_compute_units": 256},
            "bus": {"bdf": pci},
            "driver": {"name": "amdgpu", "version": amd["driver"]},
            "vram": {"type": "HBM3E", "size": {"value": amd["memory_mb"], "unit": "MB"}},
            "limit": {"socket_power": {"value": amd["power_limit_w"], "unit": "W"}},
            "ras": {"ecc_block_state": {"UMC": "ENABLED", "SDMA": "ENABLED"}},
            "partition": {"compute_partition": "SPX", "memory_partition": "NPS1"},
            "numa": {"node": n // 4, "affinity": n // 4},
        }
        for n, pci in gpus
    ]
    metric = [
        {
            "gpu": n,
            "mem_usage": {
                "total_vram": {"value": amd["memory_mb"], "unit": "MB"},
                "used_vram": {"value": 283, "unit": "MB"},
            },
            "power": {"socket_power": {"value": 239, "unit": "W"}},
            "temperature": {"hotspot": {"value": 36, "unit": "C"}, "edge": "N/A"},
            "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0},
            "clock": {"gfx_0": {"clk": {"value": 132, "unit": "MHz"}, "max_clk": {"value": 2400, "unit": "MHz"}}},
        }
        for n, _ in gpus
    ]
    process = [{"gpu": n, "process_list": [{"process_info": "No running processes detected"}]} for n, _ in gpus]
    version = [
        {"tool": "AMDSMI Tool", "version": "26.2.1", "rocm_version": amd["rocm"], "amdgpu_version": amd["driver"]}
    ]
    return {
        "amd-smi list --json": json.dumps(listed),
        "amd-smi static --json": json.dumps({"gpu_data": static}),
        "amd-smi metric": json.dumps({"gpu_data": metric}),
        "amd-smi process --json": json.dumps(process),
        "amd-smi version --json": json.dumps(version),
        "modinfo -F version amdgpu": f"{amd['driver']}\n",
    }
