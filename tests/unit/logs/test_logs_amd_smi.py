"""amd-smi and rocm-smi, in every shape seen, and never an error."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from k3lib.logs.amd_smi import parse_amd_smi, parse_json, parse_rocm_smi

LISTED = [{"gpu": 0, "bdf": "0000:05:00.0", "uuid": "75ff75a3-0000-1000-80e3-fd74aab3f72c", "partition_id": 0}]
STATIC = [
    {
        "gpu": 0, "asic": {"market_name": "AMD Instinct MI355X", "target_graphics_version": "gfx950"},
        "driver": {"version": "6.16.6"}, "vram": {"size": {"value": 294896, "unit": "MB"}},
        "partition": {"compute_partition": "CPX"},
        "limit": {"ppt0": {"socket_power_limit": {"value": 1400, "unit": "W"}}},
    }
]  # fmt: skip
HOLDER = {"process_info": {"pid": 42, "memory_usage": {"vram_mem": {"value": 0, "unit": "B"}}}}
PROCESS = [{"gpu": 0, "process_list": [HOLDER]}]


def test_both_shapes() -> None:
    """A plain list and a list under gpu_data give the same, in bytes of 1024² to amd-smi's MB."""
    shapes = (json.dumps(STATIC), "WARNING: not root\n" + json.dumps({"gpu_data": STATIC}))
    for static in shapes:
        state = parse_amd_smi(json.dumps(LISTED), static, "", json.dumps(PROCESS), "")
        assert state
        (gpu,) = state.gpus
        assert (294896 << 20, "gfx950", True, 1400.0) == (
            gpu.memory_total_bytes, gpu.capability, gpu.mig, gpu.power_limit_w
        )  # fmt: skip
        assert ("6.16.6", None) == (state.driver, gpu.memory_used_bytes)
        assert [(42, 0, gpu.uuid)] == [(p.pid, p.memory_bytes, p.gpu) for p in state.processes]


def test_no_answer_is_unknown() -> None:
    """Without a readable list nothing is known; an empty list says that there is no GPU."""
    assert parse_amd_smi("", "", "", "", "") is None
    state = parse_amd_smi("[]", "", "", "", "")
    assert state
    assert () == state.gpus


def test_rocm_smi() -> None:
    """rocm-smi of an older ROCm tells name, identity, bus and bytes."""
    card = {"Unique ID": "0x79cc", "PCI Bus": "0000:83:00.0", "VRAM Total Memory (B)": "34342961152",
            "VRAM Total Used Memory (B)": "6750208", "Card series": "Arcturus GL-XL [Instinct MI100]"}  # fmt: skip
    state = parse_rocm_smi(json.dumps({"card0": card, "system": {"Driver version": "6.3.6"}}))
    assert state
    assert [("0x79cc", "0000:83:00.0", 34342961152, 6750208)] == [
        (g.uuid, g.pci, g.memory_total_bytes, g.memory_used_bytes) for g in state.gpus
    ]
    assert "6.3.6" == state.driver


JSON = st.recursive(st.none() | st.integers() | st.floats() | st.text(max_size=8), lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["gpu", "gpu_data", "asic", "vram", "size", "value", "unit", "process_list", "process_info", "pid", "card0"]), v, max_size=4), max_leaves=12)  # fmt: skip # noqa: E501


@given(JSON.map(json.dumps) | st.text())
def test_never_raises(text: str) -> None:
    """Any text, JSON or not, is read without an error."""
    parse_json(text), parse_amd_smi(text, text, text, text, text), parse_rocm_smi(text)
