r"""
What stands before a message: who wrote it, when, how loud; taken off layer by layer.

A line wears the prefixes of everything it went through: the engine's own, Ray's, the container
runtime's, journald's. Each is one pattern here; they are peeled from the left until none fits,
so any stack of them is read, in any order. An inner layer knows its process and level better; the
outermost wrapper keeps its clock apart from the engine's, because the two rarely share a zone.

Seen, vLLM 0.5 to 0.33, SGLang, Ray 2, docker, containerd, systemd:

    (Worker_TP3 pid=903) ERROR 11-05 09:10:11 [multiproc_executor.py:703] WorkerProc hit an exception.
    (Worker pid=1360047) (Worker_TP1 pid=1360047) INFO 03-05 10:12:09 [gpu_worker.py:380] …
    \x1b[36m(RayWorkerWrapper pid=581, ip=10.0.0.18)\x1b[0m k8s-b:581:581 [0] NCCL INFO …
    2026-02-12T08:01:30.002Z stderr F (Worker_TP0 pid=210) Loading safetensors checkpoint shards: …
    Aug 19 18:44:30 host-a vllm[8707]: (APIServer pid=8707)   File "…", line 220, in …
    [rank0]:[E1023 19:02:12.100000000 ProcessGroupNCCL.cpp:2068] …

An empty text has no prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from k3lib.logs.margins import Margin
from k3lib.logs.stamps import Stamp, parse_stamp


class Level(StrEnum):
    """How loud a line says it is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class Head:
    """
    The prefixes of one line, gathered while they are peeled off.

    Args of the line that carries it: `level`, `process`, `pid`, `rank`, `time` (the engine's clock),
    `outer` (a wrapper's clock), `source` (file:line), `host`, `service`; each None if nobody said it.
    """

    __slots__ = ("host", "level", "outer", "pid", "process", "rank", "service", "source", "time")

    def __init__(self) -> None:
        self.level: Level | None = None
        self.process: str | None = None
        self.pid: int | None = None
        self.rank: str | None = None
        self.time: Stamp | None = None
        self.outer: Stamp | None = None
        self.source: str | None = None
        self.host: str | None = None
        self.service: str | None = None

    @property
    def of_engine(self) -> bool:
        """The engine's own prefix was among them, or a level that only a program writes."""
        return self.process is not None or self.time is not None or self.level is not None

    def inherit(self, other: Head) -> None:
        """Takes from another head whatever this one lacks."""
        for name in self.__slots__:
            if getattr(self, name) is None:
                setattr(self, name, getattr(other, name))


_LEVELS = {
    **dict.fromkeys(("TRACE", "DEBUG", "D"), Level.DEBUG),
    **dict.fromkeys(("INFO", "I", "NOTICE"), Level.INFO),
    **dict.fromkeys(("WARNING", "WARN", "W"), Level.WARNING),
    **dict.fromkeys(("ERROR", "E", "ERR"), Level.ERROR),
    **dict.fromkeys(("CRITICAL", "FATAL", "F", "PANIC"), Level.CRITICAL),
}
_LEVEL = r"(?P<level>TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_PID = r"pid=(?P<pid>\d{1,10})(?:, ip=(?P<host>[^)\s]{1,80}))?\) ?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
_ISO = r"\d{4}-\d{1,2}-\d{1,2}[T ]\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?"
_SOURCE = r"(?P<source>[\w./<>-]{1,120}:\d{1,6})"
_LOG_LINE = (
    rf"\((?:\S+ )?pid=|\[rank\d|{_LEVEL.replace('?P<level>', '?:')} (?:\d{{4}}-)?\d{{1,2}}-\d{{1,2}} \d|"
    r"\d{4}-\d\d-\d\d[T ]\d\d:|(?:INFO: {5}|ERROR: {4}|WARNING: {2})\S"
)
_RANKS = re.compile(r"_?(DP|PP|PCP|DCP|CP|TP|ETP|EP)(\d{1,5})")
_BARE_RANK = re.compile(r"(?:Worker|EngineCore|ApiServer|APIServer)[-_](\d{1,5})$")
_RANK_ORDER = ("DP", "PP", "PCP", "DCP", "CP", "TP", "ETP", "EP")
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
    r"|(?:\\(?:u001[bB]|x1[bB]|033)|\^\[)?\[\d{1,3}(?:;\d{1,3}){0,4}m"
)
_MOST_LAYERS = 16


def strip_colour(text: str) -> str:
    """
    The text without terminal sequences, also where the escape character was eaten by a paste or spelt out.

    >>> strip_colour("\\x1b[0;36m(APIServer pid=1)\\x1b[0;0m [32mINFO[0m")
    '(APIServer pid=1) INFO'
    """
    return _ANSI.sub("", text) if "\x1b" in text or ("m" in text and "[" in text) else text


def parse_level(text: str) -> Level | None:
    """The level that a word or letter names, or None."""
    return _LEVELS.get(text.upper())


def parse_rank(process: str) -> str | None:
    """
    The rank in a process name, dimensions in a fixed order, or None.

    >>> parse_rank("Worker_TP3_PP1"), parse_rank("EngineCore_DP0"), parse_rank("VllmWorker-0"), parse_rank("APIServer")
    ('PP1_TP3', 'DP0', '0', None)
    """
    if ranks := dict(_RANKS.findall(process)):
        return "_".join(name + ranks[name] for name in _RANK_ORDER if name in ranks)
    bare = _BARE_RANK.search(process)
    return bare.group(1) if bare else None


_Take = Callable[[Head, re.Match[str]], None]


def _take_process(head: Head, found: re.Match[str]) -> None:
    name = found.group("name")
    head.process = name
    head.pid = int(found.group("pid"))
    number = found.group("number")  # vLLM 0.8 and 0.9 told it apart from the name
    head.rank = (
        parse_rank(name)
        or (f"rank{number}" if number else None)
        or (head.rank if head.rank and head.rank.startswith("rank") else None)
    )
    head.host = found.group("host") or head.host


def _take_engine(head: Head, found: re.Match[str]) -> None:
    head.time = parse_stamp(found.group("stamp"))
    _take_fields(head, found)


def _take_wrapper(head: Head, found: re.Match[str]) -> None:
    stamp = parse_stamp(found.group("stamp"))
    if head.outer is None:
        head.outer = stamp
    _take_fields(head, found)


def _take_fields(head: Head, found: re.Match[str]) -> None:
    for name, value in found.groupdict().items():
        if value is None or name in ("stamp", "name"):
            continue
        if name == "level":
            head.level = parse_level(value)
        elif name == "pid":
            head.pid = int(value)
        elif name == "rank":
            head.rank = parse_rank(value) or value
        else:
            setattr(head, name, value)


def _take_word(head: Head, found: re.Match[str]) -> None:
    head.level = parse_level(found.group().rstrip(": "))


def _take_service(head: Head, found: re.Match[str]) -> None:
    head.service = found.group("service").rstrip()


def _take_nothing(head: Head, found: re.Match[str]) -> None:
    """For a prefix that tells nothing."""


def _peelers(*pairs: tuple[str, _Take]) -> list[tuple[re.Pattern[str], _Take]]:
    return [(re.compile(pattern), take) for pattern, take in pairs]


_AFTER_STAMP = (
    (rf"[ \t]?- (?:[\w.:/-]{{1,60}} - ){{0,3}}{_LEVEL} - (?:{_SOURCE} - )?", _take_fields),  # Python logging
    (rf"[ \t]?\| {_LEVEL} {{0,5}}\| (?P<source>\S{{1,120}}) - ", _take_fields),  # loguru
    (rf"[ \t]{{0,2}}{_LEVEL}[ \t]+{_SOURCE} -- ", _take_fields),  # Ray
    (rf"[ \t]{{0,2}}{_LEVEL} (?P<source>\w+(?:::\w+)+(?:\{{[^}}]{{0,200}}\}})?): ", _take_fields),  # Rust tracing
    (
        r"(?P<host>[\w.-]{1,80}) (?P<service>[\w./@-]{1,80})\[(?P<pid>\d{1,10})\]: ?",
        _take_fields,
    ),  # journald
)
_BRACKETED = _peelers(
    (r"\[(?P<rank>rank\d{1,5})\]: ?", _take_fields),  # torch
    (r"\[(?P<service>default\d{1,5})\]: ?", _take_fields),  # torchrun --tee
    (r"\[(?P<service>\d{1,5},\d{1,5})\]<std(?:out|err)>: ?", _take_fields),  # mpirun --tag-output
    (rf"\[(?P<level>[DIWEF])(?P<stamp>\d{{3,4}} {_CLOCK})(?: +\d+)? +(?P<source>[^\s\]]{{1,120}})\] ?", _take_engine),
    (rf"\[(?P<stamp>{_ISO})(?: (?P<rank>[TDPE]P\d{{1,5}}(?: [TDPE]P\d{{1,5}}){{0,3}}))?\]:? ?", _take_wrapper),
    (r"\[(?P<stamp>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4})\] ?", _take_wrapper),  # dmesg -T
    (r"\[ {0,8}(?P<stamp>\d{1,10}\.\d{6})\] ?", _take_wrapper),  # dmesg
    (r"\[pod/(?P<service>[^\]]{1,160})\] ?", _take_fields),  # kubectl logs --prefix
    (rf"\[{_LEVEL}\] ?", _take_fields),
)
_PROCESS = _peelers(
    (rf"\((?P<name>[^\s=]{{1,120}})(?: rank=(?P<number>\d{{1,5}}))? {_PID}", _take_process),
    (rf"\({_PID}", _take_fields),
    (r"\(raylet(?:, ip=(?P<host>[^)\s]{1,80}))?\) ?", _take_fields),
)
_DIGITS = _peelers(
    (rf"(?P<stamp>{_ISO})(?: std(?:out|err) [FP])?(?:[ \t]|$)", _take_wrapper),  # docker, containerd
    (r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}): (?:kern|user|daemon): +\w+: ", _take_fields),  # Talos
    # srun --label; what follows must look like a line of a log, a count before a colon is common in prose.
    (
        rf"(?P<service>\d{{1,5}}): (?={_LOG_LINE}|[A-Za-z_][\w.]*(?:Error|Exception)\b|Traceback | {{2,}}|$)",
        _take_fields,
    ),
    (r"\d{19}[\t ]", _take_nothing),  # a Loki export
)
_WORDS = _peelers(
    # The left end of a paste, or a write between two others, can cut the bracket off.
    (rf"(?P<name>\w{{3,60}})(?: rank=(?P<number>\d{{1,5}}))? {_PID}", _take_process),
    (
        rf"{_LEVEL} (?P<stamp>(?:\d{{4}}-)?\d{{1,2}}-\d{{1,2}} {_CLOCK})(?: \[?{_SOURCE}\])?(?: |$)",
        _take_engine,
    ),
    (r"INFO: {5}|WARNING: {2}|ERROR: {4}|CRITICAL: |DEBUG: {4}|TRACE: {4}", _take_word),
    (rf"(?:[A-Z][\w-]{{1,30}} )?{_LEVEL}: ", _take_fields),  # LMCache, plain
    (rf"(?P<level>[DIWEF])(?P<stamp>\d{{4}} {_CLOCK})\s+(?P<pid>\d{{1,10}})\s{_SOURCE}\] ?", _take_engine),
    (
        r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2}(?:\.\d{1,9})?) (?P<host>[\w.-]{1,80})"
        r" (?!\w*(?:[Ee]rror|Exception|Failure)\b)(?P<service>[^\W\d][^\s:\[]{0,79})(?:\[(?P<pid>\d{1,10})\])?: ?",
        _take_wrapper,
    ),
    (r"(?P<host>[\w.-]{1,80}):(?P<pid>\d{1,10}):\d{1,10} \[\d{1,3}\] (?=.{0,200}NCCL )", _take_fields),
    (r"(?P<service>[\w.-]{1,80}(?: {2,60}|(?<=\d) ))\| ", _take_service),
    (r"[^\t]{1,80}\t[^\t]{1,80}\t(?=\d{4}-\d\d-\d\dT)", _take_nothing),  # GitHub Actions: job, step
    (
        rf"(?P<service>[a-z0-9.]+-[a-z0-9.-]{{1,80}} [a-z0-9-]{{1,60}}) (?={_LOG_LINE})",
        _take_fields,
    ),  # stern: pod, container
)
# A quotation, a code block of a forum: only where a clock follows, else it is the message's own, or
# the log's margin (k3lib/logs/margins.py).
_QUOTED = _peelers((r"(?:> | {1,16}|\t)(?=\d{4}-\d\d-\d\d[T ]\d\d:)", _take_nothing))
_AFTER = _peelers(*_AFTER_STAMP)


def peel_prefixes(text: str, margin: Margin | None = None) -> tuple[Head, str]:
    """
    The prefixes of one line, and what is left: the message as the program wrote it.

    Args:
        text: One line without its line end and without colour.
        margin: The unknown heads of this log so far; None reads the line on its own.

    Returns:
        What the prefixes said, and the message with its own indentation.

    >>> head, message = peel_prefixes("vllm-1  | (Worker_PP0_TP1 pid=7) INFO 09-01 07:20:24 [a.py:5] Loading model…")
    >>> head.service, head.process, head.rank, head.level, message
    ('vllm-1', 'Worker_PP0_TP1', 'PP0_TP1', <Level.INFO: 'info'>, 'Loading model…')
    """
    head = Head()
    margin = margin or Margin()
    at = _peel_known(head, text, 0)
    if head.of_engine:
        margin.note_bare()
    # Only outside the engine's own prefix: beyond it, what looks like one is quoted.
    elif (end := margin.find_end(text, at)) > at:
        at = _peel_known(head, text, end)
    return head, text[at:]


def _peel_known(head: Head, text: str, at: int) -> int:
    stamped = False
    for _ in range(_MOST_LAYERS):
        end, stamped = _peel_one(head, text, at, stamped)
        if end == at:
            break
        at = end
    return at


def _peel_one(head: Head, text: str, at: int, stamped: bool) -> tuple[int, bool]:
    first = text[at : at + 1]
    if first == "(":
        peelers = _PROCESS
    elif first == "[":
        peelers = _BRACKETED
    elif first.isdigit():
        peelers = _DIGITS
    elif first.isalpha() or first == "_":
        peelers = _WORDS
    else:
        peelers = _QUOTED
    for pattern, take in peelers if not stamped else (*peelers, *_AFTER):
        found = pattern.match(text, at)
        if found and found.end() > at:
            take(head, found)
            return found.end(), take is _take_wrapper
    return at, stamped
