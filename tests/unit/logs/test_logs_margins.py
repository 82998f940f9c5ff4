"""Heads of wrappers that nobody knows: learned from the engine's lines, taken off all others."""

from __future__ import annotations

import pytest

from k3lib.logs.lines import parse_line, read_lines

ENGINE = "(EngineCore pid=7) INFO 11-05 09:00:20 [core.py:140] Initializing"
ERROR = "RuntimeError: CUDA error: out of memory"


def texts(*lines: str) -> list[str]:
    """The messages of a log."""
    return [line.text for line in read_lines("\n".join(lines) + "\n")]


@pytest.mark.parametrize(
    "head",
    [
        "(engine) ",
        "[vllm] ",
        "node3: ",
        "k3/vllm-0: ",
        "10:00:01 web.1  | ",
        "<14>1 2026-11-12T10:00:00.123456+00:00 host-a vllm 8707 - - ",
        "2026-11-12 10:00:00,123 DEBG 'vllm' stderr output: ",
        '2026-11-12T10:00:00Z {pod="k3-0"} ',
        "   12  ",
        "Nov 12 10:00:00 ",
        "> ",
        "    ",
    ],
)
def test_what_stands_before_the_engine_s_prefix_is_taken_off_other_lines_too(head: str) -> None:
    """An exception without a prefix begins its line again, and a frame keeps its own indentation."""
    assert ["Initializing", ERROR, '  File "a.py", line 3, in f'] == texts(
        head + ENGINE, head + ERROR, head + '  File "a.py", line 3, in f'
    )


def test_counts_and_clocks_of_a_head_may_change() -> None:
    """Line numbers and times run on; the head is the same."""
    assert ["Initializing", ERROR] == texts("10:00:59 web.1  | " + ENGINE, "11:07:03 web.12  | " + ERROR)


def test_a_log_that_mostly_goes_without_is_not_wrapped() -> None:
    """One indented line among plain ones teaches nothing: frames keep their indentation."""
    source = "    raise ValueError('no')"
    assert source == texts(ENGINE, ENGINE, "    " + ENGINE, source)[-1]


@pytest.mark.parametrize(
    "text",
    [
        f"RuntimeError: Worker failed with error '{ENGINE}'",
        "Received request cmpl-1: prompt: '(Worker_TP3 pid=9) ERROR 11-05 09:00:20 [a.py:1] no'",
        "$ docker logs k3 | grep (Worker_TP3 pid=9) ERROR",
        '{"unclosed": "(Worker_TP3 pid=9) ERROR',
    ],
)
def test_a_message_that_quotes_a_line_stays_whole(text: str) -> None:
    """What an exception, a request or a command holds is not a prefix."""
    assert [text] == [line.text for line in parse_line(1, text.encode())]


def test_beyond_the_engine_s_own_prefix_nothing_is_a_head() -> None:
    """A request's record that quotes a log keeps its beginning."""
    quoted = "Received request cmpl-1: (Worker_TP3 pid=9) ERROR"
    assert [quoted] == texts("(APIServer pid=1) INFO 11-05 09:00:20 [logger.py:43] " + quoted)


def test_a_rank_beside_the_name_of_a_process_is_its_rank() -> None:
    """vLLM 0.8 and 0.9 write `rank=` between the name and the process id."""
    (line,) = parse_line(1, b"(VllmWorker rank=1 pid=191128) ERROR 05-28 18:58:32 [multiproc_executor.py:522] no")
    assert ("VllmWorker", "rank1", 191128, "no") == (line.process, line.rank, line.pid, line.text)
