"""What passes the scan of a log, and that its cost does not depend on what is in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.logs.lines import read_lines
from k3lib.logs.needles import Budget, Needles, load_needles
from k3lib.logs.scan import RawLine, Scan

_NEEDLES = Needles(
    marks=frozenset({"server version "}),
    telling=frozenset({"Error", "Traceback", 'File "', "a\\b", "Größe"}),
    routine=frozenset({"throughput"}),
)
_ENDLESS = Budget(whole_bytes=0, after=0, repeats=10**9, telling=10**9, routine=10**9, sought=10**9)
_PIECES = st.sampled_from(
    ["Error", "Err", "or", "Traceback", "server version 1", "throughput", 'File "', "\\", '"', "a\\b", "Größe", "x",
     " ", "\r", "\n", "\n", "\n", "\0", "pid=7 ", "pid=8 ", "1", "22", "…"]
)  # fmt: skip
_LOGS = st.lists(_PIECES, max_size=60).map(lambda pieces: "".join(pieces).encode())


def _read(log: bytes, budget: Budget, chunk: int = 1 << 20, needles: Needles = _NEEDLES) -> tuple[list[RawLine], Scan]:
    scan = Scan(needles, budget)
    return list(scan.read(_chunks(log, chunk))), scan


def _chunks(log: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(log), size):
        yield log[start : start + size]


def _physical(log: bytes) -> list[bytes]:
    lines = log.split(b"\n")
    return lines if lines[-1] else lines[:-1]


@given(log=_LOGS, chunk=st.integers(1, 40))
def test_every_line_with_a_needle_passes_and_no_other(log: bytes, chunk: int) -> None:
    """Without a budget the scan is `grep -n -F`."""
    every = {text.encode() for text in _NEEDLES.marks | _NEEDLES.telling | _NEEDLES.routine}
    every |= {rb"File \"", rb"a\\b", rb"Gr\u00f6\u00dfe"}
    wanted = [(i, line) for i, line in enumerate(_physical(log), 1) if any(needle in line for needle in every)]
    lines, scan = _read(log, _ENDLESS, chunk)
    assert wanted == [(line.number, line.data) for line in lines]
    assert len(_physical(log)) == scan.lines


@given(log=_LOGS, chunk=st.integers(1, 40), whole=st.integers(0, 80), repeats=st.integers(1, 3))
def test_what_passes_does_not_depend_on_the_chunks(log: bytes, chunk: int, whole: int, repeats: int) -> None:
    """The same stream in other pieces gives the same lines, whatever the budget."""
    budget = Budget(whole_bytes=whole, after=2, repeats=repeats, telling=3, routine=2, sought=4)
    assert _read(log, budget)[0] == _read(log, budget, chunk)[0]


@given(log=_LOGS, whole=st.integers(0, 200))
def test_both_ends_pass_whole(log: bytes, whole: int) -> None:
    """Lines that begin in the first or the last so many bytes are all there, each once and in order."""
    lines, _ = _read(log, Budget(whole_bytes=whole))
    offsets = [line.offset for line in lines]
    starts = [0, *(i + 1 for i in range(len(log) - 1) if log[i] == 10)] if log else []
    assert sorted(set(offsets)) == offsets
    assert {start for start in starts if start < whole or start >= len(log) - whole} <= set(offsets)


def test_a_short_log_passes_whole() -> None:
    """Below 128 KiB nothing is left out, needle or not."""
    log = b"".join(b"line %d\n" % i for i in range(9000))
    assert 9000 == len(_read(log, Budget())[0])


def _flood(repeats: int) -> bytes:
    lines = [
        f"(Worker_TP{i % 8} pid={90 + i % 8}) ERROR 07-15 10:00:{i % 60:02} Error {i:x} at step {i}"
        for i in range(repeats)
    ]
    return "\n".join(lines).encode() + b"\n"


def test_a_flood_passes_a_few_times_for_each_process_and_is_counted() -> None:
    """Of 40,000 lines that differ in numbers only, 32 of each of eight processes pass; the rest is counted."""
    lines, scan = _read(_flood(40_000), Budget(whole_bytes=0))
    first = [line for line in lines if b"pid=90)" in line.data]
    assert 1 == lines[0].number
    assert 8 * 32 + 4 >= len(lines)
    assert 32 <= len(first)
    assert {"Error": 40_000 - 8 * 32} == dict(scan.left_out)


def test_another_error_inside_a_flood_passes_with_its_number() -> None:
    """A flood does not hide a line of another kind that carries the same needle."""
    log = _flood(20_000) + b"(Worker_TP1 pid=91) MemoryError: no host memory\n" + _flood(20_000)
    lines, _ = _read(log, Budget(whole_bytes=0))
    assert [20_001] == [line.number for line in lines if b"MemoryError" in line.data]


def test_lines_of_the_normal_run_stop_passing() -> None:
    """A healthy server's statistics are looked at 256 times, and their needle is then out of the search."""
    log = b"".join(b"throughput of %d tokens/s\n" % i for i in range(100_000)) + b"ValueError: late\n"
    lines, scan = _read(log, Budget(whole_bytes=0), chunk=1 << 16)
    assert 256 + 1 == len(lines)
    assert (100_001, b"ValueError: late") == (lines[-1].number, lines[-1].data)
    assert {} == dict(scan.left_out)


@pytest.mark.parametrize("chunk", [997, 1 << 20])
def test_a_new_launch_is_seen_as_if_it_stood_alone(chunk: int) -> None:
    """After the first line of the next launch everything passes again, also needles that were exhausted."""
    launch = b"server version 1\n" + b"throughput 1\n" * 1000 + b"ValueError: same\n" * 1000
    lines, _ = _read(launch * 3, Budget(whole_bytes=0, after=0), chunk)
    alone, _ = _read(launch, Budget(whole_bytes=0, after=0))
    assert 1 + 256 + 32 == len(alone)
    assert [line.data for line in alone] * 3 == [line.data for line in lines]


def test_what_follows_a_telling_line_passes_too() -> None:
    """The body of a message of several lines has no needle of its own."""
    log = b"fine\n" * 10 + b"ValueError: two\n  first\n  second\n" + b"fine\n" * 10
    lines, _ = _read(log, Budget(whole_bytes=0, after=2))
    assert [(11, b"ValueError: two"), (12, b"  first"), (13, b"  second")] == [(n.number, n.data) for n in lines]


@pytest.mark.parametrize("chunk", [7_000, 1 << 20, 1 << 23])
def test_an_overlong_line_is_clipped_as_the_reader_of_records_clips_it(chunk: int) -> None:
    """Of 3 MB both ends are kept, in whatever chunks they come, and the numbers after it are right."""
    log = b"one\n" + b"Error " + b"x" * 3_000_000 + b" Traceback\nthree Error\n"
    lines, _ = _read(log, _ENDLESS, chunk)
    assert [(2, True), (3, False)] == [(line.number, line.clipped) for line in lines]
    assert [record.text for record in read_lines(log)][1] == lines[0].data.decode()


def test_a_carriage_return_bar_stays_one_line() -> None:
    """Lines are counted by newline alone."""
    log = b"0%|  |\r50%|# |\r100%|##|Killed Error\nError\n"
    assert [1, 2] == [line.number for line in _read(log, _ENDLESS)[0]]


def test_a_needle_is_found_inside_json() -> None:
    """A wrapper that escapes quotes or everything beyond ASCII hides no line."""
    log = b'{"log":"  File \\"/a.py\\", line 3\\n"}\n{"log":"Gr\\u00f6\\u00dfe"}\n{"log":"fine"}\n'
    assert [1, 2] == [line.number for line in _read(log, _ENDLESS)[0]]


@given(st.binary(max_size=400))
def test_no_bytes_raise(log: bytes) -> None:
    """With the real needles and any bytes, the scan ends and has counted the lines."""
    assert len(_physical(log)) == _read(log, Budget(whole_bytes=0), needles=load_needles())[1].lines


def test_no_needle_is_of_two_kinds_or_holds_a_line_end() -> None:
    """Every needle of the knowledge files is looked for, in one role."""
    known = load_needles()
    every = [*known.marks, *known.telling, *known.routine]
    assert len(set(every)) == len(every)
    assert all(needle and "\n" not in needle for needle in every)
