"""nvidia-smi's outputs are read whole or not at all, and never raise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from k3lib.logs.nvidia_smi import (
    parse_header,
    parse_links,
    parse_list,
    parse_lost,
    parse_quantity,
    parse_rows,
    parse_state,
)

STATE = """<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>590.44.01</driver_version><cuda_version>13.1</cuda_version><attached_gpus>1</attached_gpus>
<gpu id="00000000:61:00.0"><product_name>NVIDIA B300 SXM6 AC</product_name><uuid>GPU-12</uuid>
<mig_mode><current_mig>N/A</current_mig></mig_mode><mig_devices>None</mig_devices>
<fb_memory_usage><total>275040 MiB</total><reserved>637 MiB</reserved><used>65720 MiB</used></fb_memory_usage>
<ecc_mode><current_ecc>Disabled</current_ecc></ecc_mode>
<ecc_errors><volatile><sram_correctable>5</sram_correctable><sram_uncorrectable_parity>N/A</sram_uncorrectable_parity>
<dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors>
<clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap></clocks_event_reasons>
<gpu_power_readings><power_state>Requested functionality has been deprecated</power_state>
<average_power_draw>3.97 W</average_power_draw></gpu_power_readings>
<fabric><state>N/A</state></fabric>
<processes><process_info><pid>4121</pid><process_name>python3</process_name><used_memory>N/A</used_memory></process_info>
</processes></gpu></nvidia_smi_log>"""


def test_state() -> None:
    """Base units, and None for everything that nvidia-smi does not tell."""
    state = parse_state("warning: infoROM is corrupted\n" + STATE)
    assert state
    (gpu,) = state.gpus
    assert ("590.44.01", "13.1", 1) == (state.driver, state.cuda, state.attached)
    assert (275040 << 20, 65720 << 20) == (gpu.memory_total_bytes, gpu.memory_used_bytes)
    assert (None, False, 2, None) == (gpu.mig, gpu.ecc, gpu.ecc_uncorrected, gpu.ecc_uncorrected_ever)
    assert (["sw_power_cap"], 3.97, None, None) == (gpu.throttles, gpu.power_w, gpu.fabric, gpu.recovery)
    assert [(4121, "GPU-12", None)] == [(p.pid, p.gpu, p.memory_bytes) for p in state.processes]


def test_former_names() -> None:
    """The names of drivers before R535 are read the same."""
    old = STATE.replace("clocks_event_reason", "clocks_throttle_reason").replace("gpu_power_readings", "power_readings")
    state = parse_state(old)
    assert state
    assert (["sw_power_cap"], 3.97) == (state.gpus[0].throttles, state.gpus[0].power_w)


def test_a_torn_document_is_unknown() -> None:
    """Half a document is no state, and entities are not expanded, wherever they are declared."""
    assert parse_state(STATE[: len(STATE) // 2]) is None
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa">]>' + STATE.partition("?>")[2].replace("GPU-12", "&a;&a;")
    assert parse_state(bomb) is None
    assert parse_state(STATE.replace("<gpu id", "<!ENTITY x 'y'><gpu id")) is None


def test_list_with_mig_devices() -> None:
    """MIG devices belong to the GPU above them."""
    text = (
        "GPU 0: NVIDIA H200 (UUID: GPU-aa)\n  MIG 3g.71gb     Device  0: (UUID: MIG-b1)\n"
        "  MIG 3g.71gb     Device  1: (UUID: MIG-b2)\nGPU 1: NVIDIA H200 (UUID: GPU-cc)\n"
    )
    first, second = parse_list(text)
    assert (("3g.71gb", "MIG-b1"), ("3g.71gb", "MIG-b2")) == first.slices
    assert () == second.slices


def test_lost() -> None:
    """Every wording of a GPU that does not answer gives its address where it has one."""
    told = [
        "Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost.  Reboot the system to recover it",
        "Unable to determine the device handle for GPU0: 0000:3D:00.0: Unknown Error",
        "Unable to determine the device handle for gpu 00000009:01:00.0: Not Found",
        "all is well",
    ]
    assert ["0000:1a:00.0", "0000:3d:00.0", "0009:01:00.0"] == [pci for pci, _ in parse_lost("\n".join(told))]


@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")))
def test_never_raises(text: str) -> None:
    """Any text is read without an error."""
    parse_state(text), parse_state("<nvidia_smi_log" + text), parse_list(text), parse_lost(text), parse_header(text)
    parse_links(text), parse_quantity(text), parse_rows(text, ["a", "b"])
