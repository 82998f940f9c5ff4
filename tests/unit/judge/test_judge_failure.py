"""First error, root or secondary, phase and route: the questions that one log alone does not settle."""

from __future__ import annotations

import pytest

from k3lib.judge.answer import Failure
from k3lib.judge.failure import judge_failure
from k3lib.judge.meaning import GPU_MEMORY_ADVICE, UNKNOWN_ADVICE
from k3lib.knowledge.signatures import load_failures
from k3lib.logs.failure import read_failures
from k3lib.logs.lines import read_lines
from k3lib.spec.vocabulary import Oom, Phase, Route

START = (
    "(EngineCore pid=7) INFO 11-05 09:00:20 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: m='m'\n"
)
READY = '(APIServer pid=1) INFO:     10.0.0.2:41000 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
FAILS = "(EngineCore pid=7) ERROR 11-05 09:10:13 [core.py:1584] EngineCore failed to start.\n"
DIES = "(EngineCore pid=7) ERROR 11-05 09:10:13 [core.py:1586] EngineCore encountered a fatal error.\n"
HELD = (
    "ValueError: Free memory on device cuda:3 ({free}/139.80 GiB) on startup is less than desired GPU memory "
    "utilization ({share}, 139.10 GiB)."
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 2 has {free} is free."


def rank(number: int, text: str, second: str = "10") -> str:
    """A worker's error line."""
    return f"(Worker_TP{number} pid=90{number}) ERROR 11-05 09:10:{second} [multiproc_executor.py:944] {text}\n"


def judge(*files: str) -> Failure:
    """The answer for the files of one incident."""
    return judge_failure([read_failures(f"file-{i}", read_lines(text)) for i, text in enumerate(files)])


def test_the_earlier_of_two_causes_decides_and_the_memory_is_secondary() -> None:
    """An OOM after another error is its consequence."""
    failure = judge(
        READY
        + rank(5, "CUDA error: an illegal memory access was encountered")
        + rank(2, "CUDA out of memory", "12")
        + DIES
    )
    assert (2, Oom.SECONDARY, Route.REPORT_UPSTREAM) == (
        failure.first_error and failure.first_error.line,
        failure.oom,
        failure.route,
    )


def test_an_allocator_that_claims_plenty_of_room_is_not_believed() -> None:
    """31 GiB free and 112 MiB refused: the context was broken before, and the log does not say by what."""
    text = OOM.format(tried="112.00 MiB", free="a total capacity of 267.70 GiB of which 31.20 GiB")
    assert (Oom.SECONDARY, Route.INCONCLUSIVE) == ((f := judge(READY + rank(2, text) + DIES)).oom, f.route)


@pytest.mark.parametrize(
    ("step", "frame", "ending", "phase", "route"),
    [
        ("Loading model from scratch...", "create_weights", FAILS, Phase.WEIGHTS, Route.EXTEND),
        ("Available KV cache memory: 19.0 GiB", "capture_model", FAILS, Phase.MEMORY, Route.TUNE),
        ("Available KV cache memory: 19.0 GiB", "execute_model", DIES, Phase.SERVING, Route.TUNE),
    ],
)
def test_the_same_lack_of_memory_asks_for_something_else_in_each_phase(
    step: str, frame: str, ending: str, phase: Phase, route: Route
) -> None:
    """Weights that do not fit are no question of requests; R-02 and R-03."""
    log = (
        START
        + f"(Worker_TP2 pid=902) INFO 11-05 09:05:10 [m.py:1] {step}\n"
        + rank(2, f'  File "/a.py", line 1, in {frame}')
    )
    failure = judge(log + rank(2, OOM.format(tried="2.00 GiB", free="1.00 GiB")) + ending)
    assert (phase, Oom.ROOT, route) == (failure.phase, failure.oom, failure.route)


def test_without_its_beginning_a_lack_of_memory_has_no_route() -> None:
    """A log that shows no phase leaves open whether weights or requests took the memory."""
    assert Route.INCONCLUSIVE is judge(rank(2, OOM.format(tried="2.00 GiB", free="1.00 GiB"))).route


@pytest.mark.parametrize(
    ("free", "oom", "route"), [("12.00", Oom.SECONDARY, Route.FIX_ENVIRONMENT), ("138.90", Oom.NONE, Route.TUNE)]
)
def test_memory_that_others_hold_is_told_from_a_setting_that_asks_too_much(free: str, oom: Oom, route: Route) -> None:
    """The same sentence: 12 of 140 GiB free means somebody else, 139 of 140 means the setting."""
    text = HELD.format(free=free, share="0.995")
    failure = judge(START + rank(3, text) + FAILS)
    assert (Phase.INIT, oom, route) == (failure.phase, failure.oom, failure.route)


def test_only_the_kernel_s_log_tells_hardware_from_a_defect() -> None:
    """An unspecified launch failure is open alone; with an Xid of the same minute it is the hardware's."""
    engine = READY + rank(6, "CUDA error: unspecified launch failure") + DIES
    xid = "[Thu Nov  5 09:1{m}:09 2026] NVRM: Xid (PCI:0000:b7:00): 79, GPU has fallen off the bus.\n"
    assert Route.INCONCLUSIVE is judge(engine).route
    assert Route.MIGRATE is judge(engine, xid.format(m="0")).route
    assert Route.INCONCLUSIVE is judge(engine, xid.format(m="8").replace("Nov  5", "Oct 29")).route


def test_a_log_that_just_ends_is_explained_by_the_host() -> None:
    """Weights were loading, and the kernel killed the process for memory."""
    loading = "(Worker_TP0 pid=9) INFO 11-05 09:05:10 [m.py:1] Loading model from scratch...\n"
    killed = "[26002.110061] Out of memory: Killed process 576419 (VLLM::Worker) total-vm:78521468kB\n"
    failure = judge(START + loading, killed)
    assert (Phase.WEIGHTS, Oom.HOST_RAM, "file-1") == (
        failure.phase,
        failure.oom,
        failure.first_error and failure.first_error.file,
    )


def test_what_only_announces_a_failure_is_never_its_root() -> None:
    """A log that begins after the cause: failed, and inconclusive."""
    failure = judge(
        FAILS + "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert (True, None, Route.INCONCLUSIVE, "cause-missing") == (
        failure.failed,
        failure.first_error,
        failure.route,
        failure.rule,
    )


def test_an_unknown_exception_of_the_front_end_does_not_hide_the_worker_s() -> None:
    """Requests fail first in the log; the engine's own error decides."""
    request = "(APIServer pid=1) ERROR 11-05 09:10:09 [serving.py:900] RuntimeError: stream broke\n"
    failure = judge(READY + request + rank(5, "CUDA error: an illegal memory access was encountered") + DIES)
    assert "illegal-memory-access" == failure.rule


def test_a_refused_request_is_no_failure_of_the_engine() -> None:
    """The engine answers before and after it."""
    said = "The input (9 tokens) is longer than the model's context length (8 tokens)."
    refused = f"(APIServer pid=1) ERROR 11-05 09:10:09 [serving.py:1] {said}\n"
    failure = judge(READY + refused + READY)
    assert (False, Route.FIX_CLIENT, Phase.SERVING) == (failure.failed, failure.route, failure.phase)


def test_a_restart_loop_is_answered_by_its_first_failure() -> None:
    """Later launches find the memory that the first one did not free."""
    banner = "(APIServer pid=1) INFO 11-05 09:11:00 [a.py:1] vLLM server version 0.33.0, serving model m\n"
    held = HELD.format(free="12.00", share="0.995")
    log = (
        banner
        + START
        + READY
        + rank(5, "CUDA error: device-side assert triggered")
        + DIES
        + banner
        + START
        + rank(3, held)
        + FAILS
    )
    failure = judge(log)
    assert ("device-side-assert", 1, 2) == (failure.rule, failure.launch, failure.launches)


def test_every_advice_is_given_by_something() -> None:
    """No family of next steps stands in the knowledge without a way to it."""
    given = {signature.advice for signature in load_failures().signatures}
    given |= {*GPU_MEMORY_ADVICE.values(), *UNKNOWN_ADVICE.values(), "utilization"}
    assert set(load_failures().advice) == {name for name in given if name}
