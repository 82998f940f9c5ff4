"""
The same incident, written down otherwise: what wrappers, terminals, pastes and schedulers do to a log.

Every function takes a log and gives one in which the same thing happened. Line counts stay, unless
the name says otherwise, so that answers can be compared line by line.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import groupby

Variation = Callable[[bytes], bytes]

_START = datetime(2026, 7, 15, 10, 0, 0, tzinfo=UTC)
_ZONED = re.compile(rb"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)((?:\.\d{1,9})?)Z")
_ENGINE_CLOCK = re.compile(rb"(?<=(?:INFO|RROR|NING|EBUG) )(\d\d-\d\d) (\d\d):(\d\d:\d\d)(?= \[)")
_LEVEL = re.compile(rb"\b(INFO|WARNING|ERROR|CRITICAL)(?= \d\d-\d\d)")
_PROCESS = re.compile(rb"^\((?:[\w.]*Worker[\w.]*|EngineCore\w*) (?:rank=\d+ )?pid=\d+[^)]*\)")


def split_lines(log: bytes) -> list[bytes]:
    """Physical lines without their newlines."""
    lines = log.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _each(log: bytes, change: Callable[[int, bytes], bytes]) -> bytes:
    return b"".join(change(i, line) + b"\n" for i, line in enumerate(split_lines(log)))


def _moment(i: int) -> datetime:
    return _START + timedelta(milliseconds=5 * i)


def docker_stamps(log: bytes) -> bytes:
    """`docker logs -t`."""
    return _each(log, lambda i, line: f"{_moment(i):%Y-%m-%dT%H:%M:%S.%f}000Z ".encode() + line)


def containerd_stamps(log: bytes) -> bytes:
    """A file under /var/log/pods."""
    return _each(log, lambda i, line: f"{_moment(i):%Y-%m-%dT%H:%M:%S.%f}000Z stderr F ".encode() + line)


def kubectl_prefix(log: bytes) -> bytes:
    """`kubectl logs --prefix --timestamps`."""
    return _each(log, lambda i, line: f"[pod/k3-0/vllm] {_moment(i):%Y-%m-%dT%H:%M:%S.%f}000Z ".encode() + line)


def journald_stamps(log: bytes) -> bytes:
    """`journalctl -u vllm`."""
    return _each(log, lambda i, line: f"{_moment(i):%b %d %H:%M:%S} node-a vllm[8707]: ".encode() + line)


def journald_iso_stamps(log: bytes) -> bytes:
    """`journalctl -u vllm -o short-iso`."""
    return _each(log, lambda i, line: f"{_moment(i):%Y-%m-%dT%H:%M:%S}+0000 node-a vllm[8707]: ".encode() + line)


def loki_export(log: bytes) -> bytes:
    """Nanoseconds since 1970 and a tabulator."""
    return _each(log, lambda i, line: f"{1_784_109_600_000_000_000 + 5_000_000 * i}\t".encode() + line)


def github_stamps(log: bytes) -> bytes:
    """A log of GitHub Actions as `gh run view --log` prints it."""
    return _each(log, lambda i, line: f"test\tStart the engine\t{_moment(i):%Y-%m-%dT%H:%M:%S.%f}0Z ".encode() + line)


def compose_stamps(log: bytes) -> bytes:
    """`docker compose logs -t`."""
    return _each(log, lambda i, line: f"vllm-1  | {_moment(i):%Y-%m-%dT%H:%M:%S.%f}000Z ".encode() + line)


def compose_prefix(log: bytes) -> bytes:
    """`docker compose logs`."""
    return _each(log, lambda _, line: b"vllm-1  | " + line)


def json_lines(log: bytes) -> bytes:
    """A file of docker's json-file driver."""

    def wrap(i: int, line: bytes) -> bytes:
        text = line.decode("utf-8", "replace") + "\n"
        return json.dumps({"log": text, "stream": "stderr", "time": f"{_moment(i):%Y-%m-%dT%H:%M:%S.%f}Z"}).encode()

    return _each(log, wrap)


def colours(log: bytes) -> bytes:
    """A terminal: the process in cyan, the level in red."""

    def paint(_: int, line: bytes) -> bytes:
        line = _LEVEL.sub(b"\x1b[31m\\1\x1b[0m", line)
        end = line.find(b") ") + 1
        return b"\x1b[0;36m" + line[:end] + b"\x1b[0;0m" + line[end:] if line.startswith(b"(") and end else line

    return _each(log, paint)


def windows_line_ends(log: bytes) -> bytes:
    """CRLF, as a paste through a mail program has it."""
    return log.replace(b"\n", b"\r\n")


def progress_bars(log: bytes) -> bytes:
    """A progress bar, redrawn, with every third line glued to its end."""
    bar = b"Loading safetensors checkpoint shards: %3d%% Completed | %d/4 [00:01<00:01,  1.00it/s]"
    drawn = b"\r".join(bar % (25 * n, n) for n in range(1, 4))
    return _each(log, lambda i, line: b"\r" + drawn + b"\r" + line if i % 3 == 0 else line)


def utf16(log: bytes) -> bytes:
    """What PowerShell's `>` makes of it."""
    return log.decode("utf-8", "replace").encode("utf-16")


def another_zone(log: bytes) -> bytes:
    """The wrapper's clock in another zone, the same moments; the engine's clock seven hours on."""

    def move(found: re.Match[bytes]) -> bytes:
        then = datetime.fromisoformat(f"{found[1].decode()}T{found[2].decode()}") + timedelta(hours=5, minutes=30)
        return then.isoformat().encode() + found[3] + b"+05:30"

    def shift(found: re.Match[bytes]) -> bytes:
        then = datetime.fromisoformat(f"2026-{found[1].decode()}T{found[2].decode()}:{found[3].decode()}")
        return f"{then + timedelta(hours=7):%m-%d %H:%M:%S}".encode()

    return _ENGINE_CLOCK.sub(shift, _ZONED.sub(move, log))


def shuffled(log: bytes, seed: int) -> bytes:
    """Neighbouring lines of engine and workers, of one second, in another order; each process keeps its own."""
    dice = random.Random(seed)
    merged: list[bytes] = []
    for movable, group in groupby(split_lines(log), key=_shuffle_key):
        lines = list(group)
        merged += _merge(lines, dice) if movable else lines
    return b"".join(line + b"\n" for line in merged)


def _shuffle_key(line: bytes) -> bytes | None:
    clock = _ENGINE_CLOCK.search(line)
    return clock.group() if clock and _PROCESS.match(line) else None


def _merge(lines: list[bytes], dice: random.Random) -> list[bytes]:
    queues: dict[bytes, list[bytes]] = {}
    for line in lines:
        process = _PROCESS.match(line)
        queues.setdefault(process.group() if process else b"", []).append(line)
    merged = []
    while queues:
        name = dice.choice(sorted(queues))
        merged.append(queues[name].pop(0))
        if not queues[name]:
            del queues[name]
    return merged


def cut_end(log: bytes, at: int) -> bytes:
    """The log as it stood when so many bytes were written."""
    return log[:at]


def flipped(log: bytes, seed: int) -> bytes:
    """One byte in two hundred is another one."""
    dice = random.Random(seed)
    broken = bytearray(log)
    for _ in range(len(log) // 200 + 1):
        if broken:
            broken[dice.randrange(len(broken))] = dice.randrange(256)
    return bytes(broken)


def doubled(log: bytes, seed: int) -> bytes:
    """Some lines twice, as two collectors of one stream write them; the line count changes."""
    dice = random.Random(seed)
    return b"".join((line + b"\n") * dice.choice([1, 1, 1, 2]) for line in split_lines(log))


SAME_LINES: dict[str, Variation] = {
    "docker": docker_stamps,
    "containerd": containerd_stamps,
    "kubectl": kubectl_prefix,
    "journald": journald_stamps,
    "journald-iso": journald_iso_stamps,
    "compose": compose_prefix,
    "compose-stamps": compose_stamps,
    "github": github_stamps,
    "loki": loki_export,
    "json": json_lines,
    "colours": colours,
    "crlf": windows_line_ends,
    "utf-16": utf16,
    "zone": another_zone,
}
