r"""
Tracebacks and what belongs to them, found again in a log that several processes write into at once.

Every process (its name, id and rank) has a block of its own open, so lines of eight ranks may be
shuffled in any way that keeps each rank's own order. Seen, vLLM 0.5 to 0.33, SGLang, Ray, torchrun:

    (Worker_TP2 pid=99) ERROR 04-09 20:44:10 [multiproc_executor.py:949] WorkerProc hit an exception.
    (Worker_TP2 pid=99) ERROR 04-09 20:44:10 [multiproc_executor.py:949] Traceback (most recent call last):
    (Worker_TP2 pid=99) ERROR 04-09 20:44:10 [multiproc_executor.py:949]   File "…/gpu_worker.py", line 588, in compile
    (Worker_TP2 pid=99) ERROR 04-09 20:44:10 [multiproc_executor.py:949]     self.capture_model()
    (Worker_TP2 pid=99) ERROR 04-09 20:44:10 [multiproc_executor.py:949] torch.OutOfMemoryError: CUDA out of memory. …

A line of source inside a traceback can quote any message; it is no evidence of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from k3lib.knowledge.signatures import frame_phases
from k3lib.logs.lines import LogLine
from k3lib.logs.prefixes import Level
from k3lib.spec.vocabulary import Phase

LOUD = (Level.ERROR, Level.CRITICAL)
_MOST_STREAMS = 4096
TRACEBACK = "Traceback (most recent"
_FRAME = re.compile(r'^\s*File "[^"]{0,4000}", line \d+, in (?P<function>[\w<>.]+)')
_SOURCE = re.compile(r"^(?: {4,}|\s*[~^]{2,}[\s~^|]*$|\s*$|\s*\.\.\.<\d+ lines>)")
_EXCEPTION = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Exit|Interrupt|Timeout|Failure|Terminated|Disconnect))"
    r"(?:\(\w+\))?(?=:\s|:$|$|\()"
)
_CHAIN = re.compile(r"exception was the direct cause of|During handling of the above exception")
_COMMAND = re.compile(r"^(?:\S+[@:]\S*)?[$#] |^-{3,} ")


class Part(StrEnum):
    """What a line is to the block of its process."""

    OUTSIDE = "outside"
    OPENING = "opening"
    FRAME = "frame"
    SOURCE = "source"
    EXCEPTION = "exception"
    CHAIN = "chain"
    DETAIL = "detail"


@dataclass(eq=False, slots=True)
class Block:
    """
    One error of one process, while it is read.

    Args:
        number: Distinguishes the blocks of a log.
        first, last: Physical lines.
        source: `file:line` of the program that logs it, or None.
        phase: What its outermost known frame tells, or None.
        part: The part read last.
    """

    number: int
    first: int
    last: int
    source: str | None
    phase: Phase | None = None
    part: Part = Part.OPENING


def parse_exception(text: str) -> str | None:
    """
    The class of the exception whose message a line is, or None.

    >>> parse_exception("torch.distributed.DistNetworkError: The client socket has timed out")
    'torch.distributed.DistNetworkError'
    >>> parse_exception("    raise ValueError('no')") is None
    True
    """
    found = _EXCEPTION.match(text[:400])
    return found.group("name") if found else None


class BlockReader:
    """Follows the blocks of all processes of one log, in bounded memory."""

    def __init__(self) -> None:
        self._open: dict[tuple[str | None, int | None, str | None, str | None], Block] = {}
        self._count = 0

    def read(self, line: LogLine) -> tuple[Part, Block | None]:
        """
        Takes the next line.

        Returns:
            What it is to the block of its process, and that block, or None outside one.
        """
        stream = (line.process, line.pid, line.rank, line.service)
        block = self._open.get(stream)
        part = self._part(line, block)
        if part is Part.OUTSIDE:
            self._open.pop(stream, None)
            return part, None
        if block is None or (part is Part.OPENING and not _belongs(line, block)):
            block = self._begin(stream, line)
        block.last, block.part = line.number, part
        if part is Part.FRAME and block.phase is None and (found := _FRAME.match(line.text)):
            block.phase = frame_phases().get(found.group("function").rpartition(".")[2])
        return part, block

    def _begin(self, stream: tuple[str | None, int | None, str | None, str | None], line: LogLine) -> Block:
        self._count += 1
        block = self._open[stream] = Block(self._count, line.number, line.number, line.source)
        if len(self._open) > _MOST_STREAMS:
            del self._open[next(iter(self._open))]
        return block

    def _part(self, line: LogLine, block: Block | None) -> Part:
        text = line.said
        if TRACEBACK in text:
            return Part.OPENING
        if 'File "' in text and _FRAME.match(text):
            return Part.FRAME
        if block is not None and _CHAIN.search(text):
            return Part.CHAIN
        if parse_exception(text):
            return Part.EXCEPTION
        loud = line.level in LOUD
        if block is None:
            return Part.OPENING if loud else Part.OUTSIDE
        if not text.strip() and (loud or line.level is None):
            return block.part
        if block.part in (Part.FRAME, Part.SOURCE) and _SOURCE.match(text):
            return Part.SOURCE
        if loud:
            return Part.DETAIL if line.source is not None and line.source == block.source else Part.OPENING
        if line.level is not None or _COMMAND.match(text):
            return Part.OUTSIDE
        # Without a prefix of its own, only what follows at once can be the rest of a message.
        near = line.number - block.last <= 1 or line.process is not None
        return Part.DETAIL if near and block.part in (Part.EXCEPTION, Part.DETAIL) else Part.OUTSIDE


def _belongs(line: LogLine, block: Block) -> bool:
    """A traceback continues a block that only announced it, or that says that one exception led to another."""
    if line.source != block.source:
        return False
    return block.part in (Part.OPENING, Part.CHAIN) or (block.part is Part.DETAIL and line.source is not None)
