"""Somebody's log, of any size and quality, and the answer: what failed, in which phase, at which line, what next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from k3lib.judge.answer import Failure
from k3lib.judge.failure import judge_failure
from k3lib.logs.failure import LogReading, read_failures
from k3lib.logs.lines import LogLine, parse_line
from k3lib.logs.margins import Margin
from k3lib.logs.needles import load_needles
from k3lib.logs.scan import RawLine, Scan
from k3lib.record.incident import Note, open_incident

if TYPE_CHECKING:
    from k3lib.report.tables import Table

_MOST_BLOCK_LINES = 40
_MOST_BLOCK_SPAN = 100_000
_KEPT_BYTES = 8 << 20  # of lines that a block may be shown of, for all files together


@dataclass(frozen=True)
class Triage:
    """
    The answer for one argument.

    Args:
        argument: As given.
        failure: The answer.
        block: The lines around the first error, numbered; its file's own text.
        notes: What was not read, or not to its end.
        language: Of the texts, `en` or `fr`.
    """

    argument: str
    failure: Failure
    block: list[tuple[int, str]]
    notes: list[Note]
    language: Literal["en", "fr"] = "en"

    def as_dict(self) -> dict[str, Any]:
        """The object that `k3 triage --json` prints."""
        from k3lib.report.triage import render_json

        return render_json(self.argument, self.failure, self.language)

    def milestones(self) -> Table:
        """The way that the answering launch went."""
        from k3lib.report.triage import render_milestones

        return render_milestones(self.failure, self.language)

    def __str__(self) -> str:
        from k3lib.report.triage import render_note, render_text

        notes = [render_note(note.file, note.trouble.value, note.detail, self.language) for note in self.notes]
        return render_text(self.argument, self.failure, self.block, notes, self.language)

    def __repr__(self) -> str:
        return str(self)


def triage(argument: str, language: Literal["en", "fr"] = "en") -> Triage:
    """
    What failed in one log or one incident.

    Args:
        argument: A file, plain or compressed, a folder whose files are one incident, or `-` for standard input.
        language: Of the texts.

    Returns:
        The answer.

    Raises:
        InputError: Nothing at all can be read.
    """
    incident = open_incident(argument)
    kept: dict[str, _Surroundings] = {}
    logs: list[LogReading] = []
    for file in incident.files:
        kept[file.name] = _Surroundings(_KEPT_BYTES // len(incident.files))
        logs.append(kept[file.name].read(file.name, file.chunks()))
    failure = judge_failure(logs)
    first = failure.first_error
    block = kept[first.file].lines(*first.block, first.line) if first else []
    return Triage(argument, failure, block, incident.notes, language)


def read_signs(name: str, chunks: Iterable[bytes]) -> LogReading:
    """The signs of failure in one log that is given as bytes."""
    return _Surroundings(_KEPT_BYTES).read(name, chunks)


class _Surroundings:
    """Parses the lines that the scan lets through; remembers their text, and whether the last one had an end."""

    def __init__(self, room_bytes: int) -> None:
        self._room_bytes = room_bytes
        self._texts: dict[int, bytes] = {}
        self._bytes = 0
        self._ended = True

    def read(self, name: str, chunks: Iterable[bytes]) -> LogReading:
        """The signs of failure in one log."""
        scan = Scan(load_needles())
        reading = read_failures(name, self._parse(scan.read(self._watch_end(chunks))))
        return reading if self._ended else reading.model_copy(update={"cut": scan.lines})

    def _watch_end(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if chunk:
                self._ended = chunk.endswith(b"\n")
            yield chunk

    def _parse(self, raw: Iterable[RawLine]) -> Iterator[LogLine]:
        margin = Margin()
        for line in raw:
            if self._bytes < self._room_bytes:
                text = line.data[:2000]
                self._texts[line.number] = text
                self._bytes += len(text) + 100
            yield from parse_line(line.number, line.data, clipped=line.clipped, margin=margin)

    def lines(self, first: int, last: int, told: int) -> list[tuple[int, str]]:
        """The lines of a block, at most 40: its beginning, and what stands around the line that names the error."""
        within = range(first, last + 1) if last - first < _MOST_BLOCK_SPAN else range(told, told + 1)
        numbers = [n for n in within if n in self._texts]
        if len(numbers) > _MOST_BLOCK_LINES:
            numbers = [n for n in numbers if n < first + 5 or abs(n - told) < _MOST_BLOCK_LINES // 2]
        return [(n, self._texts[n].decode("utf-8", "replace").strip("\r\n")) for n in numbers]
