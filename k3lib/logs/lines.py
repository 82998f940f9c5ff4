"""
Bytes to records: line number, who, when, how loud, what. Streaming, bounded, never raises.

Input: bytes in chunks or lines of any size, from plain files, `docker logs`, `kubectl logs`,
`journalctl`, JSON lines, a paste. One physical line can give several records with its number: a
carriage-return progress bar with something glued to it, a JSON line that holds a traceback.

    Loading safetensors checkpoint shards: 25% Completed | 1/4 [00:02<00:08, 2.79s/it]Killed
    {"log":"(APIServer pid=1) INFO 07-15 10:00:21 [a.py:1] …\\n","stream":"stderr","time":"2026-07-15T10:00:21Z"}

Lines are counted by newline, as `grep -n` counts. NUL bytes are dropped, so UTF-16 pastes of plain
English read too; bytes that are no UTF-8 become U+FFFD. Empty input gives no record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from k3lib.logs.margins import Margin
from k3lib.logs.prefixes import Head, Level, parse_level, parse_rank, peel_prefixes, strip_colour
from k3lib.logs.stamps import Stamp, parse_stamp

_KEPT_BYTES = 64 * 1024  # of either end of an overlong line
_MOST_PIECES = 200  # records of one physical line
_MOST_NESTING = 3  # JSON texts inside JSON texts

_COUNT = r"[\d.,]{1,16}[A-Za-z]{0,3}"
_BAR = re.compile(rf"\d{{1,3}}%(?:\|[^|]{{0,400}}\| ?| Completed \| ){_COUNT}/{_COUNT} \[[^\]]{{0,200}}\]")
# A record of a request ends in what the client wrote; that is no word of the engine.
_REQUEST = re.compile(
    r"(?:(?:Received|Added) request|Request|Generated response|Receive:)\b"
    r".{0,200}?\b(?:prompt|output|text|messages)[:=]"
)
_ROLES = re.compile(
    r"(?P<worker>^(?:Vllm|Ray)?Worker)|(?P<engine>^(?:EngineCore|MQLLMEngine|LLMEngine))"
    r"|(?P<front_end>^(?:API_?Server|RustFrontend|DPCoordinator))",
    re.I,
)


class Role(StrEnum):
    """Which part of an engine a process is, nearest to the hardware first."""

    WORKER = "worker"
    ENGINE = "engine"
    FRONT_END = "front_end"


@dataclass(frozen=True, slots=True)
class LogLine:
    """
    One record of a log.

    Args:
        number: Physical line, counted by newline from 1; several records can share it.
        text: The message without prefixes and colour, indentation kept.
        level: How loud the line says it is, or None.
        process: Name of the process as written, `Worker_TP3`, or None.
        pid: Its process id, or None.
        rank: `TP3`, `PP1_TP3`, `rank3`, `DP0`, or None.
        time: The engine's own clock, or None.
        outer: The clock of the outermost wrapper (docker, Kubernetes, journald), or None.
        source: `file:line` of the program, or None.
        host: Host or address that a prefix named, or None.
        service: Container, pod or unit that a prefix named, or None.
        clipped: The middle of an overlong line was left out.
    """

    number: int
    text: str
    level: Level | None = None
    process: str | None = None
    pid: int | None = None
    rank: str | None = None
    time: Stamp | None = None
    outer: Stamp | None = None
    source: str | None = None
    host: str | None = None
    service: str | None = None
    clipped: bool = False

    @property
    def role(self) -> Role | None:
        """The part of the engine that wrote the line, by the name of its process."""
        found = _ROLES.search(self.process) if self.process else None
        return Role(found.lastgroup) if found and found.lastgroup else None

    @property
    def said(self) -> str:
        """What the program itself says: the text without a client's prompt or the model's answer."""
        found = _REQUEST.match(self.text) if self.text[:3] in ("Rec", "Add", "Req", "Gen") else None
        return self.text[: found.end()] if found else self.text


def read_lines(source: bytes | str | Iterable[bytes | str]) -> Iterator[LogLine]:
    """
    Records of a log, in order.

    Args:
        source: The whole log, or chunks or lines of it: an open binary file will do.

    Yields:
        At least one record per physical line; memory stays within a few hundred KiB beyond one chunk.

    >>> [line.text for line in read_lines(b"(Worker_TP0 pid=7) INFO 09-01 07:20:24 [a.py:5] hello\\n")]
    ['hello']
    """
    margin = Margin()
    for number, raw, clipped in _physical_lines([source] if isinstance(source, bytes | str) else source):
        yield from parse_line(number, raw, clipped=clipped, margin=margin)


def parse_line(number: int, raw: bytes, *, clipped: bool = False, margin: Margin | None = None) -> list[LogLine]:
    """
    The records of one physical line.

    Args:
        number: Its number, 1 or more.
        raw: Its bytes without the newline.
        clipped: Whether its middle is missing.
        margin: What its log's unknown wrappers put before every line; None reads the line on its own.

    Returns:
        One record; more for a progress bar with something glued to it or for several lines in one JSON text.
    """
    if number == 1:
        raw = raw.removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff")
    text = strip_colour(raw.replace(b"\0", b"").decode("utf-8", "replace").strip("\r\ufeff"))
    heads = _read_text(text, _MOST_NESTING, margin or Margin())[:_MOST_PIECES]
    for head, _ in heads[1:]:
        head.outer = head.outer or heads[0][0].outer
    return [_record(number, head, message, clipped) for head, message in heads]


def _record(number: int, head: Head, message: str, clipped: bool) -> LogLine:
    return LogLine(
        number, message, head.level, head.process, head.pid, head.rank,
        head.time, head.outer, head.source, head.host, head.service, clipped,
    )  # fmt: skip


def _physical_lines(chunks: Iterable[bytes | str]) -> Iterator[tuple[int, bytes, bool]]:
    number = 1
    rest = HeldLine()
    for chunk in chunks:
        data = chunk.encode("utf-8", "replace") if isinstance(chunk, str) else chunk
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            rest.add(data, start, end)
            yield number, *rest.take()
            number += 1
            start = end + 1
        rest.add(data, start, len(data))
    if rest.held:
        yield number, *rest.take()


class HeldLine:
    """An unfinished line: its head and its tail, never more."""

    def __init__(self) -> None:
        self.held = 0
        self._head = b""
        self._tail = b""

    def add(self, data: bytes, start: int, end: int) -> None:
        """Takes data[start:end] to the line, without copying more of it than is kept."""
        if end == start:
            return
        self.held += end - start
        room = _KEPT_BYTES - len(self._head)
        if room > 0:
            self._head += data[start : min(end, start + room)]
            start = min(end, start + room)
        if end > start:
            self._tail = (self._tail + data[max(start, end - _KEPT_BYTES) : end])[-_KEPT_BYTES:]

    def take(self) -> tuple[bytes, bool]:
        """The line, and whether its middle is missing; empties itself."""
        missing = self.held - len(self._head) - len(self._tail)
        joint = f" […{missing} bytes…] ".encode() if missing else b""
        line = self._head + joint + self._tail
        self.held, self._head, self._tail = 0, b"", b""
        return line, missing > 0


def is_overlong(size_bytes: int) -> bool:
    """Whether a line of this size loses its middle."""
    return size_bytes > 2 * _KEPT_BYTES


def _read_text(text: str, nesting: int, margin: Margin) -> list[tuple[Head, str]]:
    head, message = peel_prefixes(text, margin)
    if message.startswith("{") and nesting:
        inner, wrapped = _unwrap_json(message)
        if wrapped is not None:
            return _read_wrapped(head, inner, _read_inside(wrapped, nesting - 1, margin))
    if "\r" not in message and "%" not in message:
        return [(head, message)]
    return _read_bars(head, message, margin)


def _read_inside(wrapped: str, nesting: int, margin: Margin) -> Iterator[tuple[Head, str]]:
    for part in wrapped.rstrip("\r\n").split("\n")[:_MOST_PIECES]:
        yield from _read_text(strip_colour(part.rstrip("\r")), nesting, margin)


def _read_wrapped(head: Head, inner: Head, read: Iterable[tuple[Head, str]]) -> list[tuple[Head, str]]:
    told: list[tuple[Head, str]] = []
    for own, text in read:
        # The outermost clock is the wrapper's; everything else the inside knows better.
        own.outer = head.outer or inner.outer or own.outer
        own.inherit(inner)
        own.inherit(head)
        told.append((own, text))
    return told


def _read_bars(head: Head, message: str, margin: Margin) -> list[tuple[Head, str]]:
    read: list[tuple[Head, str]] = []
    last_label: str | None = None
    # A prefix can stand alone before a carriage return: it belongs to what was drawn first.
    owner: Head | None = head
    for piece in _cut_bars(message):
        own, text = peel_prefixes(piece, margin)
        if owner is not None:
            own.inherit(owner)
            owner = None
        bar = _BAR.search(text)
        label = text[: bar.start()].strip() if bar else None
        # Of one bar that redraws itself only the last drawing counts.
        if label is not None and label == last_label:
            own.inherit(read.pop()[0])
        read.append((own, text))
        last_label = label
        if len(read) >= _MOST_PIECES:
            break
    return read or [(head, message.replace("\r", ""))]


def _cut_bars(message: str) -> Iterator[str]:
    for part in message.split("\r"):
        at = 0
        for bar in _BAR.finditer(part):
            yield part[at : bar.end()]
            at = bar.end()
        if part[at:].strip():
            yield part[at:]


_MESSAGE_KEYS = ("log", "message", "msg", "MESSAGE", "text")
_TIME_KEYS = ("time", "ts", "timestamp", "@timestamp", "asctime")
_LEVEL_KEYS = ("levelname", "level", "severity")
_PROCESS_KEYS = ("processName", "process_name", "vllm_process_name")
_PID_KEYS = ("process", "pid", "_PID")
# Structured loggers put what failed beside the message, and a traceback into a field of its own.
_DETAIL_KEYS = ("error", "err", "reason", "status", "status_code", "response_flags")
_TRACE_KEYS = ("exc_info", "exception", "stacktrace", "stack_trace", "traceback")


def _unwrap_json(text: str) -> tuple[Head, str | None]:
    head = Head()
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return head, None
    message = _first(fields, _MESSAGE_KEYS)
    if not isinstance(message, str):
        return head, None
    when, level = _first(fields, _TIME_KEYS), _first(fields, _LEVEL_KEYS)
    process, pid = _first(fields, _PROCESS_KEYS), _first(fields, _PID_KEYS)
    # vLLM's own JSON formatter writes `asctime`; any other time is a wrapper's.
    if isinstance(when, str):
        stamp = parse_stamp(when.replace(",", "."))
        head.time, head.outer = (stamp, None) if "asctime" in fields else (None, stamp)
    head.level = parse_level(level) if isinstance(level, str) else None
    if isinstance(process, str):
        head.process, head.rank = process, parse_rank(process)
    head.pid = int(found.group()) if (found := re.fullmatch(r"[0-9]{1,10}", str(pid))) else None
    return head, message + _details(fields)


def _details(fields: dict[str, object]) -> str:
    beside = [f"{key}={fields[key]}" for key in _DETAIL_KEYS if isinstance(fields.get(key), str | int)]
    traces = [str(fields[key]) for key in _TRACE_KEYS if isinstance(fields.get(key), str)]
    return "".join(f" {text}" for text in beside) + "".join(f"\n{text}" for text in traces)


def _first(fields: object, keys: tuple[str, ...]) -> object:
    if not isinstance(fields, dict):
        return None
    return next((fields[key] for key in keys if key in fields), None)
