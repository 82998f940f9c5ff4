"""The kernel's log gives Xid errors, kills and driver messages, with their time where it can be known."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from k3lib.logs.kernel import parse_kernel_log

BOOT = datetime(2026, 11, 29, tzinfo=UTC)
XID = "NVRM: Xid (PCI:0000:1a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_three_clocks() -> None:
    """dmesg's seconds, dmesg's ISO time and the journal's give the same moment."""
    forms = (
        f"[   61.500000] {XID}",
        f"2026-11-29T00:01:01,500000+00:00 {XID}",
        f"2026-11-29T00:01:01+0000 node7 kernel: {XID}",
    )
    found = [parse_kernel_log(form, BOOT)[0] for form in forms]
    assert {"2026-11-29T00:01:01+00:00"} == {event.at for event in found}
    assert {("xid", 79, "0000:1a:00.0", None)} == {(e.kind, e.code, e.pci, e.pid) for e in found}


def test_without_boot_time_there_is_no_time() -> None:
    """Seconds since an unknown boot are no time."""
    assert parse_kernel_log(f"[   61.5] {XID}")[0].at is None


def test_kinds() -> None:
    """Each line that explains a failure has its kind; the others are passed over."""
    lines = {
        "oom-kill": "Memory cgroup out of memory: Killed process 4121 (vllm) total-vm:1kB",
        "driver-load": "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
        "driver-error": "NVRM: API mismatch: the client has the version 580.95, but this kernel module has 580.82",
        "hardware-error": "EDAC MC0: 1 UE memory read error on CPU_SrcID#0",
    }
    log = "\n".join(["usb 1-1: new device", *lines.values(), "eth0: link up"])
    assert list(lines) == [event.kind for event in parse_kernel_log(log)]
    assert 4121 == parse_kernel_log(log)[0].pid


@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")))
def test_never_raises(text: str) -> None:
    """Any text is read without an error."""
    parse_kernel_log(text, BOOT)
    parse_kernel_log(f"[{text}] NVRM: Xid (PCI:{text}): 79", BOOT)
