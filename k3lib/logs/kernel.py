"""
The kernel's log: Xid errors, processes killed for memory, loads and complaints of GPU drivers, hardware errors.

Comes from `dmesg`, `dmesg --time-format iso` and `journalctl -k -o short-iso`. Sample lines:

    [ 8123.123456] NVRM: Xid (PCI:0000:1a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    2026-11-28T03:12:44,061728+00:00 NVRM: Xid (PCI:0000:1a:00): 31, pid=4121, name=VLLM::Worker, Ch 00000008, …
    2026-11-28T03:12:44+0000 node7 kernel: Out of memory: Killed process 4121 (vllm) total-vm:…kB, anon-rss:…kB
    [   12.345678] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build
    2026-11-28T03:12:44+0000 node7 kernel: NVRM: API mismatch: the client has the version 580.95.05, but …

Empty input means that nothing is known: a log that may not be read looks like a quiet one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from k3lib.logs.nvidia_smi import normalize_pci
from k3lib.spec.snapshot import KernelEvent

Kind = Literal["xid", "oom-kill", "driver-load", "driver-error", "hardware-error"]

_SECONDS = re.compile(r"^(?:<\d+>)?\[\s*(\d+(?:\.\d+)?)\]\s?(.*)$")
_ISO = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)([.,]\d+)?(Z|[+-]\d\d:?\d\d)?\s+(.*)$")
_HOST = re.compile(r"^\S+ kernel(?:\[\d+\])?: ")

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)(?:, pid='?(\d+)?)?")
_KILLED = re.compile(r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process (\d+)")
_RULES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (
        "driver-load",
        re.compile(r"NVRM: loading NVIDIA UNIX|\[drm\] (?:amdgpu kernel modesetting enabled|Initialized amdgpu)"),
    ),
    (
        "hardware-error",
        re.compile(r"\[Hardware Error\]|EDAC .*\bUE\b|AER: .*(?:Uncorrected|Fatal)|nvidia-nvswitch.*SXid"),
    ),
    (
        "driver-error",
        re.compile(
            r"NVRM: (?:API mismatch|RmInitAdapter failed|.*failed|GPU .*has fallen off|.*not supported)"
            r"|amdgpu .*(?:GPU reset|ring .* timeout|failed|fatal error)",
            re.I,
        ),
    ),
)


def parse_kernel_log(text: str, booted_at: datetime | None = None) -> list[KernelEvent]:
    """
    The lines of a kernel log that explain failures.

    Args:
        text: The log, or lines of it; anything is taken.
        booted_at: When the machine booted, with offset; gives lines with seconds since boot a time.

    Returns:
        Events in the order of the log.

    >>> parse_kernel_log("[5.0] NVRM: Xid (PCI:0000:1a:00): 79, pid=12, GPU has fallen off the bus.")[0].code
    79
    """
    found = []
    for line in text.splitlines():
        at, message = _split_time(line, booted_at)
        if event := _read_event(at, message):
            found.append(event)
    return found


def _split_time(line: str, booted_at: datetime | None) -> tuple[str | None, str]:
    if iso := _ISO.match(line):
        offset = (iso[3] or "").replace("Z", "+00:00")
        offset = f"{offset[:3]}:{offset[-2:]}" if offset else ""
        return iso[1] + offset, _HOST.sub("", iso[4])
    if seconds := _SECONDS.match(line):
        since = float(seconds[1])
        at = booted_at + timedelta(seconds=since) if booted_at and since < 1e9 else None
        return at.astimezone(UTC).isoformat(timespec="seconds") if at else None, seconds[2]
    return None, line


def _read_event(at: str | None, message: str) -> KernelEvent | None:
    text = message[:500]
    if xid := _XID.search(message):
        pid = int(xid[3]) if xid[3] else None
        return KernelEvent(kind="xid", at=at, code=int(xid[2]), pci=normalize_pci(xid[1]), pid=pid, text=text)
    if killed := _KILLED.search(message):
        return KernelEvent(kind="oom-kill", at=at, pid=int(killed[1]), text=text)
    for kind, pattern in _RULES:
        if pattern.search(message):
            return KernelEvent(kind=kind, at=at, text=text)
    return None
