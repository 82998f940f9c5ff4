"""Signs of failure: tracebacks found again through shuffling, quoted messages that are no evidence, bounded memory."""

from __future__ import annotations

import json

from k3lib.knowledge.signatures import SignKind
from k3lib.logs.failure import LaunchReading, read_failures
from k3lib.logs.lines import read_lines
from k3lib.spec.vocabulary import Phase

RANK = "(Worker_TP{r} pid=90{r}) ERROR 04-09 20:44:10 [multiproc_executor.py:949] "
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB."


def read(log: str) -> LaunchReading:
    """The last launch of a log."""
    return read_failures("engine.log", read_lines(log)).launches[-1]


def traceback(rank: int, error: str) -> list[str]:
    """A worker's traceback, a line per entry."""
    said = [
        "WorkerProc hit an exception.",
        "Traceback (most recent call last):",
        '  File "/a/w.py", line 5, in load_model',
    ]
    return [RANK.format(r=rank) + text for text in [*said, "    self.load()", error]]


def test_two_ranks_shuffled_line_by_line_give_two_blocks() -> None:
    """Each block reaches from its rank's first line to its rank's last, with the phase its frames tell."""
    mixed = [line for pair in zip(traceback(2, OOM), traceback(0, OOM), strict=True) for line in pair]
    signs = [sign for sign in read("\n".join(mixed)).signs if sign.kind is SignKind.CAUSE]
    assert [(9, 1, 9, Phase.WEIGHTS), (10, 2, 10, Phase.WEIGHTS)] == [
        (s.line, s.first, s.last, s.frames) for s in signs
    ]


def test_a_message_quoted_in_a_source_line_is_no_evidence() -> None:
    """Python prints the source of the raise statement; the message in it was not said there."""
    lines = traceback(1, "ValueError: other")
    lines.insert(4, RANK.format(r=1) + '    raise ValueError("No available memory for the cache blocks.")')
    assert ["ValueError"] == [sign.exception for sign in read("\n".join(lines)).signs if sign.kind is SignKind.CAUSE]


def test_the_outermost_known_frame_tells_the_phase() -> None:
    """A forward pass inside profiling is profiling."""
    frames = ['  File "/a.py", line 1, in determine_available_memory', '  File "/a.py", line 2, in execute_model']
    log = "\n".join(RANK.format(r=0) + text for text in ["WorkerProc hit an exception.", *frames, OOM])
    assert [Phase.MEMORY] == [sign.frames for sign in read(log).signs if sign.kind is SignKind.CAUSE]


def test_what_a_process_repeats_is_counted_and_not_kept() -> None:
    """A flood of one error costs one sign."""
    reading = read((RANK.format(r=0) + OOM + "\n") * 5000)
    assert (1, 4999) == (len(reading.signs), reading.repeated)


def test_a_structured_logger_s_traceback_is_read() -> None:
    """JSON lines put the traceback into a field of its own; all its records have the line's number."""
    trace = 'Traceback (most recent call last):\n  File "/a.py", line 1, in load_model\nKeyError: 1'
    log = json.dumps({"level": "error", "msg": "worker failed", "exc_info": trace})
    assert [("KeyError", 1)] == [(sign.exception, sign.line) for sign in read(log).signs if sign.exception]


def test_an_abort_counts_only_after_a_long_wait() -> None:
    """A request that its client takes back at once is no sign; after minutes it is."""
    added = "(APIServer pid=1) INFO 12-13 04:10:01 [async_llm.py:390] Added request chatcmpl-1.\n"
    aborted = "(APIServer pid=1) INFO 12-13 04:{m}:02 [async_llm.py:959] Aborted request(s) chatcmpl-1.\n"
    assert [] == read(added + aborted.format(m="10")).signs
    assert ["request-aborted"] == [sign.signature for sign in read(added + aborted.format(m="15")).signs]


def test_empty_input_is_one_silent_launch() -> None:
    """No line, no sign, no error."""
    reading = read_failures("engine.log", [])
    assert (1, []) == (reading.count, reading.launches[0].signs)
