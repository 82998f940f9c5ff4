"""First error and phase where the evidence is thin, quoted, of another node, or not the engine's own words."""

from __future__ import annotations

import pytest

from k3lib.judge.answer import Failure
from k3lib.judge.failure import judge_failure
from k3lib.logs.failure import read_failures
from k3lib.logs.lines import read_lines
from k3lib.spec.vocabulary import Oom, Phase, Route

START = (
    "(EngineCore pid=7) INFO 11-05 09:00:20 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: m='m'\n"
)
READY = '(APIServer pid=1) INFO:     10.0.0.2:41000 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
CAME_UP = (
    "(EngineCore pid=7) INFO 11-05 09:02:20 [core.py:396] init engine (profile, create kv cache, warmup model) "
    "took 92.11 s\n"
)
FAILS = "(EngineCore pid=7) ERROR 11-05 09:10:13 [core.py:1584] EngineCore failed to start.\n"
DIES = "(EngineCore pid=7) ERROR 11-05 09:10:09 [core.py:1586] EngineCore encountered a fatal error.\n"
ASSERTS = "(Worker_TP3 pid=903) ERROR 11-05 09:10:10 [a.py:944] CUDA error: device-side assert triggered\n"
HELD = (
    "CUDA out of memory. Tried to allocate 1.31 GiB. GPU 3 has a total capacity of 267.70 GiB "
    "of which 1.02 GiB is free."
)
OWN = (
    " Including non-PyTorch memory, this process has 95.30 GiB memory in use. Of it 94.10 GiB is allocated by PyTorch."
)
WATCHDOG = (
    "[rank0]:[E1105 09:20:06.110022001 ProcessGroupNCCL.cpp:688] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600059 milliseconds before timing out.\n"
)
KILLED = (
    "ERROR 11-05 09:10:09 [multiproc_executor.py:381] Worker proc VllmWorker-11 died unexpectedly (exit code: -9), "
    "shutting down executor.\n"
)
KERNEL = "[Thu Nov  5 09:10:05 2026] Out of memory: Killed process 40311 (VLLM::Worker_TP) total-vm:9012kB\n"


def error(text: str) -> str:
    """A worker's error line while the weights load."""
    return (
        "(Worker_TP3 pid=903) INFO 11-05 09:01:00 [model_runner.py:399] Loading model from scratch...\n"
        f"(Worker_TP3 pid=903) ERROR 11-05 09:10:10 [multiproc_executor.py:944] torch.OutOfMemoryError: {text}\n"
    )


def judge(*files: str) -> Failure:
    """The answer for the files of one incident."""
    return judge_failure([read_failures(f"file-{i}", read_lines(text)) for i, text in enumerate(files)])


def test_an_error_that_only_survives_as_a_quotation_is_still_read() -> None:
    """The worker's lines are lost, the engine's repeat them, and its frames tell the phase."""
    at = "(EngineCore pid=7) ERROR 11-05 09:10:13 [core.py:1584] "
    failure = judge(
        f'{at}  File "/v/core.py", line 286, in _initialize_kv_caches\n'
        f"{at}RuntimeError: Worker failed with error '{HELD}', please check the stack trace above for the root cause\n"
    )
    assert (2, Phase.MEMORY, Oom.ROOT) == (
        failure.first_error and failure.first_error.line,
        failure.phase,
        failure.oom,
    )


def test_a_process_of_the_engine_that_speaks_proves_that_configuration_is_over() -> None:
    """Without any milestone, a worker's error stands in the initialisation at the earliest."""
    failure = judge("(Worker_TP3 pid=903) ERROR 11-05 09:10:10 [multiproc_executor.py:944] RuntimeError: no\n" + FAILS)
    assert Phase.INIT is failure.phase


@pytest.mark.parametrize(
    ("others", "oom", "route"),
    [
        (" Process 2751070 has 171.35 GiB memory in use.", Oom.SECONDARY, Route.FIX_ENVIRONMENT),
        (
            " Process 5 has 1.00 GiB memory in use. Process 6 has 2.50 GiB memory in use.",
            Oom.SECONDARY,
            Route.FIX_ENVIRONMENT,
        ),
        (" Process 5 has 500.00 MiB memory in use.", Oom.ROOT, Route.EXTEND),
        ("", Oom.ROOT, Route.EXTEND),
    ],
)
def test_processes_that_the_allocator_names_beside_its_own_are_somebody_else_s(
    others: str, oom: Oom, route: Route
) -> None:
    """Only their sum beyond what a context takes makes the lack of memory theirs."""
    failure = judge(START + error(HELD + others + OWN) + FAILS)
    assert (oom, route) == (failure.oom, failure.route)


def test_a_process_that_the_allocator_names_alone_is_the_engine_itself() -> None:
    """In a container torch does not know its own number on the host."""
    assert Oom.ROOT is judge(START + error(HELD + " Process 2751070 has 266.35 GiB memory in use.") + FAILS).oom


def test_of_several_nodes_the_error_that_began_first_decides() -> None:
    """A watchdog speaks ten minutes late: the kill on the other node, and the kernel's line about it, came first."""
    failure = judge(START + READY + WATCHDOG, START + READY + KILLED, KERNEL)
    assert (("file-2", 1), Oom.HOST_RAM, Route.FIX_ENVIRONMENT) == (
        failure.first_error and (failure.first_error.file, failure.first_error.line),
        failure.oom,
        failure.route,
    )


def test_a_node_that_only_repeats_errors_leaves_the_word_to_the_one_that_names_one() -> None:
    """Whichever file comes first, and where no clock can be compared, a cause decides before a symptom."""
    repeats = START + READY + DIES
    names = START + READY + ASSERTS
    lost = "RuntimeError: NCCL error: remote process exited or there was a network error\n"
    assert "device-side-assert" == judge(repeats, names).rule
    assert "device-side-assert" == judge(lost, names).rule


@pytest.mark.parametrize(
    "quoted",
    ["Received request cmpl-1: prompt: '{}', params: SamplingParams(n=1)", "Generated response cmpl-1: output: '{}'"],
)
def test_what_a_client_quotes_is_no_error_of_the_engine(quoted: str) -> None:
    """A prompt or an answer that holds a traceback leaves a healthy log healthy."""
    text = quoted.format(f"Traceback (most recent call last): EngineCore failed to start. {HELD}")
    failure = judge(f"{START}{READY}(APIServer pid=1) INFO 11-05 09:30:00 [logger.py:43] {text}\n{READY}")
    assert (False, Route.NONE) == (failure.failed, failure.route)


@pytest.mark.parametrize(("ready", "route"), [("", Route.FIX_COMMAND), (READY, Route.REPORT_UPSTREAM)])
def test_a_value_refused_between_engine_and_api_stands_in_the_command(ready: str, route: Route) -> None:
    """Once requests are served the same exception is a defect."""
    refused = "(EngineCore pid=7) ERROR 11-05 09:10:10 [core.py:1341] ValueError: this must not be 7\n"
    assert route is judge(START + CAME_UP + ready + refused).route


@pytest.mark.parametrize(("ready", "phase"), [("", Phase.MEMORY), (READY, Phase.SERVING)])
def test_a_probe_can_kill_what_serves(ready: str, phase: Phase) -> None:
    """The orchestrator's kill stands where the engine stood."""
    kill = "  Normal   Killing    2m   kubelet  Container vllm failed liveness probe, will be restarted\n"
    assert phase is judge(START + CAME_UP + ready + kill).phase


def test_a_dead_engine_seen_only_by_its_client_had_served() -> None:
    """Nothing else in the file shows a phase."""
    client = (
        "openai.InternalServerError: Error code: 500 - {'error': {'message': 'EngineCore encountered an issue.'}}\n"
    )
    assert (Phase.SERVING, Route.INCONCLUSIVE) == ((f := judge(client)).phase, f.route)


def test_the_event_with_the_reason_is_quoted_before_the_row_with_the_state() -> None:
    """A table of pods says that the image is missing, the kubelet's event says why."""
    row = "kimi-0   0/1     ImagePullBackOff   0          14m\n"
    event = '  Warning  Failed  12m  kubelet  Failed to pull image "vllm/nope": no match for platform in manifest\n'
    failure = judge(row + event)
    assert 2 == (failure.first_error and failure.first_error.line)


def test_what_an_exception_announces_says_more_than_the_announcement() -> None:
    """`raised:` ends a line whose error is the next one."""
    at = "(Worker_TP1 pid=9) ERROR 11-05 09:10:10 [multiproc_executor.py:522] "
    failure = judge(
        f"{START}{at}torch._dynamo.exc.BackendCompilerFailed: backend='vllm' raised:\n"
        f"{at}RuntimeError: a previous compilation failed, leading to a corrupted compilation artifact.\n{FAILS}"
    )
    assert ("compile-cache-corrupt", Route.FIX_ENVIRONMENT) == (failure.rule, failure.route)


def test_an_announcement_at_the_end_of_a_log_decides_nothing() -> None:
    """What it announces is missing: a defect of the compiler, or a damaged cache."""
    at = "(Worker_TP1 pid=9) ERROR 11-05 09:10:10 [multiproc_executor.py:522] "
    raised = f"{START}{at}torch._dynamo.exc.BackendCompilerFailed: backend='vllm' raised:\n"
    assert (Route.INCONCLUSIVE, Route.REPORT_UPSTREAM) == (
        judge(raised).route,
        judge(f"{raised}{at}AssertionError: in Triton decomposition\n").route,
    )


def test_what_ended_a_pod_ended_it_where_it_stood_wherever_that_is_told() -> None:
    """Events pasted above the log are later than all of it."""
    events = "11m  Warning  Evicted  pod/k3-0  The node was low on resource: ephemeral-storage.\n"
    loading = "(Worker_TP3 pid=903) INFO 11-05 09:01:00 [model_runner.py:399] Loading model from scratch...\n"
    assert Phase.WEIGHTS is judge(events + START + loading).phase


def test_a_clock_of_whole_seconds_is_not_earlier_than_one_with_fractions() -> None:
    """The native line above a worker's block is the first error, though its clock shows milliseconds."""
    native = (
        "E1105 09:10:10.101117  4670 rdma_context.cpp:210] Failed to register memory 0x7f: Cannot allocate memory\n"
    )
    worker = (
        "(Worker_TP0 pid=3) ERROR 11-05 09:10:10 [multiproc_executor.py:944] "
        "RuntimeError: NCCL error: unhandled system error\n"
    )
    failure = judge(START + native + worker + FAILS)
    assert ("rdma-memory-refused", Oom.NONE) == (failure.rule, failure.oom)
