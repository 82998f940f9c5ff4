"""Bytes to records: every prefix seen in the wild, glued bars, JSON, broken bytes, bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k3lib.logs.lines import LogLine, Role, read_lines
from k3lib.logs.prefixes import Level


def _one(text: str) -> LogLine:
    (line,) = read_lines(text)
    return line


def _said(line: LogLine) -> dict[str, object]:
    fields = ("level", "process", "pid", "rank", "source", "host", "service")
    said: dict[str, object] = {name: getattr(line, name) for name in fields if getattr(line, name) is not None}
    said |= {name: stamp.text for name in ("time", "outer") if (stamp := getattr(line, name))}
    return said | {"text": line.text}


_PREFIXES: list[tuple[str, dict[str, object]]] = [
    (
        "(Worker_TP3_EP3 pid=903) ERROR 11-05 09:10:11 [multiproc_executor.py:703]   File x",
        {"level": "error", "process": "Worker_TP3_EP3", "pid": 903, "rank": "TP3_EP3", "time": "11-05 09:10:11",
         "source": "multiproc_executor.py:703", "text": "  File x"},
    ),
    (
        "(Worker pid=1360047) (Worker_TP1 pid=1360047) INFO 03-05 10:12:09 [v1/worker/gpu_worker.py:380] go",
        {"level": "info", "process": "Worker_TP1", "pid": 1360047, "rank": "TP1", "time": "03-05 10:12:09",
         "source": "v1/worker/gpu_worker.py:380", "text": "go"},
    ),
    (
        "\x1b[36m(RayWorkerWrapper pid=581, ip=10.0.0.18)\x1b[0m k8s-b:581:581 [0] NCCL INFO Trees",
        {"process": "RayWorkerWrapper", "pid": 581, "host": "k8s-b", "text": "NCCL INFO Trees"},
    ),
    (
        "(AsyncVLLMInferenceEngine pid=892) (EngineCore_0 pid=892801) INFO 09-10 23:14:10 [p.py:1] x",
        {"level": "info", "process": "EngineCore_0", "pid": 892801, "rank": "0", "time": "09-10 23:14:10",
         "source": "p.py:1", "text": "x"},
    ),
    (
        "\x1b[6m(APIServer pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[9m11-20 08:55:01\x1b[0m \x1b[90m[a.py:1]\x1b[0m h",
        {"level": "info", "process": "APIServer", "pid": 1, "time": "11-20 08:55:01", "source": "a.py:1", "text": "h"},
    ),
    ("[36m(pid=77)[0m hi", {"pid": 77, "text": "hi"}),
    (
        "ERROR 03-26 05:31:40 engine.py:389] Traceback",
        {"level": "error", "time": "03-26 05:31:40", "source": "engine.py:389", "text": "Traceback"},
    ),
    ("ERROR 02-13 18:10 [m.py:8] hit", {"level": "error", "time": "02-13 18:10", "source": "m.py:8", "text": "hit"}),
    (
        "ERROR:    (Worker_TP0 pid=3533) INFO 10-11 22:40:10 [g.py:2653] loaded",
        {"level": "info", "process": "Worker_TP0", "pid": 3533, "rank": "TP0", "time": "10-11 22:40:10",
         "source": "g.py:2653", "text": "loaded"},
    ),
    (
        "(APIServer pid=1) INFO:     Application startup complete.",
        {"level": "info", "process": "APIServer", "pid": 1, "text": "Application startup complete."},
    ),
    (
        "vllm-1  | (Worker_PP1_TP0 pid=1871) ERROR 09-01 07:20:27 [m.py:974] no",
        {"level": "error", "process": "Worker_PP1_TP0", "pid": 1871, "rank": "PP1_TP0", "time": "09-01 07:20:27",
         "source": "m.py:974", "service": "vllm-1", "text": "no"},
    ),
    (
        "2026-02-12T08:01:30.002Z stderr F (Worker_TP0 pid=210) x",
        {"process": "Worker_TP0", "pid": 210, "rank": "TP0", "outer": "2026-02-12T08:01:30.002Z", "text": "x"},
    ),
    (
        "Aug 19 18:44:30 host-a vllm[8707]: (APIServer pid=8707)     y",
        {"process": "APIServer", "pid": 8707, "host": "host-a", "service": "vllm", "outer": "Aug 19 18:44:30",
         "text": "    y"},
    ),
    (
        "2026-08-19T18:44:30+0000 host-a vllm[8707]: y",
        {"pid": 8707, "host": "host-a", "service": "vllm", "outer": "2026-08-19T18:44:30+0000", "text": "y"},
    ),
    (
        "[2026-02-24T20:30:58Z] (EngineCore_DP0 pid=6940) ERROR 02-24 12:30:58 [core.py:1006] no",
        {"level": "error", "process": "EngineCore_DP0", "pid": 6940, "rank": "DP0", "time": "02-24 12:30:58",
         "outer": "2026-02-24T20:30:58Z", "source": "core.py:1006", "text": "no"},
    ),
    (
        "2026-03-09 01:27:30.122744672 (MapWorker(MapBatches(vLLMEngineActor)) pid=1202, ip=10.0.0.118) z",
        {"process": "MapWorker(MapBatches(vLLMEngineActor))", "pid": 1202, "host": "10.0.0.118",
         "outer": "2026-03-09 01:27:30.122744672", "text": "z"},
    ),
    ("[2025-11-03 04:11:20 TP1] Init", {"rank": "TP1", "outer": "2025-11-03 04:11:20", "text": "Init"}),
    ("[rank3]:   File x", {"rank": "rank3", "text": "  File x"}),
    (
        "[rank2]:[E1023 19:02:12.100000000 ProcessGroupNCCL.cpp:2068] [PG ID 2] end",
        {"level": "error", "rank": "rank2", "time": "1023 19:02:12.100000000", "source": "ProcessGroupNCCL.cpp:2068",
         "text": "[PG ID 2] end"},
    ),
    (
        "[rank0]:[W731 09:21:48.669000000 ProcessGroupNCCL.cpp:5188] guess",
        {"level": "warning", "rank": "rank0", "time": "731 09:21:48.669000000", "source": "ProcessGroupNCCL.cpp:5188",
         "text": "guess"},
    ),
    (
        "W1130 17:13:46.798000 16020 torch/_library/triton.py:53] no Triton",
        {"level": "warning", "pid": 16020, "time": "1130 17:13:46.798000", "source": "torch/_library/triton.py:53",
         "text": "no Triton"},
    ),
    (
        "2026-08-27 10:41:58,035 - 355 - ServiceProfiler - INFO - hello",
        {"level": "info", "outer": "2026-08-27 10:41:58,035", "text": "hello"},
    ),
    (
        "2026-11-30T16:55:51.123456Z  INFO vllm_rs::server: starting vLLM server",
        {"level": "info", "outer": "2026-11-30T16:55:51.123456Z", "source": "vllm_rs::server",
         "text": "starting vLLM server"},
    ),
    ("[26002.109918] oom_reaper: x", {"outer": "26002.109918", "text": "oom_reaper: x"}),
    ("[Sun Aug  2 03:10:45 2026] NVRM: Xid", {"outer": "Sun Aug  2 03:10:45 2026", "text": "NVRM: Xid"}),
    (
        "10.0.0.19: kern: warning: [2026-04-22T21:37:51.291560000Z]: NVRM: z",
        {"host": "10.0.0.19", "outer": "2026-04-22T21:37:51.291560000Z", "text": "NVRM: z"},
    ),
    (" node-1 is fine", {"text": " node-1 is fine"}),
    ("3: (Worker_TP3 pid=4) x", {"service": "3", "process": "Worker_TP3", "pid": 4, "rank": "TP3", "text": "x"}),
    ("Worker_TP0 pid=370) x", {"process": "Worker_TP0", "pid": 370, "rank": "TP0", "text": "x"}),
    ("LMCache WARNING: Failed", {"level": "warning", "text": "Failed"}),
    (
        '{"log":"(APIServer pid=1) INFO 07-15 10:00:21 [a.py:1] v\\n","stream":"out","time":"2026-07-15T10:00:21.5Z"}',
        {"level": "info", "process": "APIServer", "pid": 1, "time": "07-15 10:00:21", "outer": "2026-07-15T10:00:21.5Z",
         "source": "a.py:1", "text": "v"},
    ),
    (
        '{"asctime":"11-20 08:55:01","levelname":"ERROR","processName":"EngineCore_DP1","process":7,"message":"m"}',
        {"level": "error", "process": "EngineCore_DP1", "pid": 7, "rank": "DP1", "time": "11-20 08:55:01", "text": "m"},
    ),
    ('{"error":"no message here"}', {"text": '{"error":"no message here"}'}),
    ("[main] INFO: not a colour", {"text": "[main] INFO: not a colour"}),
    ("RuntimeError: CUDA error: out of memory", {"text": "RuntimeError: CUDA error: out of memory"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), _PREFIXES, ids=[text[:36] for text, _ in _PREFIXES])
def test_prefixes_are_peeled(text: str, expected: dict[str, object]) -> None:
    """Each prefix seen in the wild gives who, when, how loud, and leaves the message with its indentation."""
    assert expected == _said(_one(text))


@pytest.mark.parametrize(
    ("expected", "raw"),
    [
        (["75% Completed | 3/4 [00:08<00:02, 2.8s/it]", "Killed"],
         "0% Completed | 0/4 [00:00<?, ?it/s]\r75% Completed | 3/4 [00:08<00:02, 2.8s/it]Killed"),
        (["Shards: 21%|██   | 105/500 [03:30<14:02,  2.13s/it]", "Sequence 221 is preempted"],
         "Shards: 21%|██   | 105/500 [03:30<14:02,  2.13s/it]WARNING 03-06 10:22:11 s.py:1] Sequence 221 is preempted"),
        (["A: 100%|█| 4/4 [00:01<00:00, 1it/s]", "B:   0%|   | 0/9 [00:00<?, ?it/s]"],
         "A:  50%|█| 2/4 [00:01<00:00, 1it/s]\rA: 100%|█| 4/4 [00:01<00:00, 1it/s]\rB:   0%|   | 0/9 [00:00<?, ?it/s]"),
        (["Loading: 11% Completed | 7/62 [00:44<06:01, 6.6s/it]"],
         "(Worker_TP0 pid=210) \rLoading: 11% Completed | 7/62 [00:44<06:01, 6.6s/it]"),
        (["hello"], "hello\r"),
    ],
)  # fmt: skip
def test_what_is_glued_to_a_progress_bar_is_a_record_of_its_own(expected: list[str], raw: str) -> None:
    """A bar that redraws itself counts once; an error behind it on the same physical line is not lost."""
    lines = list(read_lines(raw))
    assert expected == [line.text for line in lines]
    assert {1} == {line.number for line in lines}


def test_a_prefix_before_a_carriage_return_belongs_to_the_bar() -> None:
    """The process that stands before `\\r` is the bar's."""
    line = _one("(Worker_TP0 pid=210) \rLoading: 11% Completed | 7/62 [00:44<06:01, 6.6s/it]")
    assert ("Worker_TP0", 210, "TP0") == (line.process, line.pid, line.rank)


def test_a_json_line_with_a_traceback_gives_its_lines() -> None:
    """Lines inside one JSON text share its number, clock and process."""
    lines = list(read_lines('{"message":"no\\nTraceback\\n  File x","asctime":"11-20 08:55:01","process":7}\nb\n'))
    assert [(1, "no", 7), (1, "Traceback", 7), (1, "  File x", 7), (2, "b", None)] == [
        (line.number, line.text, line.pid) for line in lines
    ]


@pytest.mark.parametrize(
    ("expected", "raw"),
    [
        (["INFO here"], "\ufeffINFO here\n".encode()),
        (["hello", "b"], "hello\nb\n".encode("utf-16")),
        (["a\ufffdb"], b"a\xffb"),
        (["ab"], b"a\0b\0"),
        (["a", "b"], b"a\r\nb\r\n"),
    ],
    ids=["bom", "utf-16", "latin-1", "nul", "crlf"],
)
def test_encodings_and_line_ends(expected: list[str], raw: bytes) -> None:
    """Byte-order marks, UTF-16, NUL bytes, broken bytes and CRLF all give readable text."""
    assert expected == [line.text for line in read_lines(raw) if line.text]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000), st.integers(1, 64))
def test_any_bytes_in_any_chunks_give_the_same_records(data: bytes, size: int) -> None:
    """Nothing raises, and where the chunks are cut makes no difference."""
    whole = list(read_lines(data))
    assert whole == list(read_lines(data[i : i + size] for i in range(0, len(data), size)))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=1000))
def test_lines_are_numbered_as_grep_numbers_them(data: bytes) -> None:
    """Numbers count newlines and nothing else; every physical line has a record."""
    physical = data.count(b"\n") + (0 if data.endswith(b"\n") or not data else 1)
    assert list(range(1, physical + 1)) == sorted({line.number for line in read_lines(data)})


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from('([{:pid=1 )]}E0-W|%\r\x1bmINFO ERROR,.\\"T'), max_size=400))
def test_prefix_like_text_raises_nothing(text: str) -> None:
    """Text made of the pieces of prefixes is read, whatever it means."""
    assert all(line.number >= 1 for line in read_lines(text))


def test_a_line_of_a_hundred_megabytes_needs_little_memory() -> None:
    """An endless line keeps its two ends, says what is missing, and never fills the memory."""

    def chunks() -> Iterator[bytes]:
        yield b"(Worker_TP0 pid=7) start"
        for _ in range(1600):
            yield b"x" * 65_536
        yield b"the end\nnext\n"

    tracemalloc.start()
    try:
        lines = list(read_lines(chunks()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(1, True), (2, False)] == [(line.number, line.clipped) for line in lines]
    assert lines[0].process == "Worker_TP0"
    assert lines[0].text.endswith("the end")
    assert "bytes…]" in lines[0].text
    assert peak < 2_000_000


@pytest.mark.parametrize(
    ("expected", "process"),
    [
        (Role.WORKER, "Worker_TP3"),
        (Role.WORKER, "VllmWorker-0"),
        (Role.WORKER, "RayWorkerWrapper"),
        (Role.ENGINE, "EngineCore_DP1"),
        (Role.FRONT_END, "APIServer"),
        (Role.FRONT_END, "ApiServer_2"),
        (Role.FRONT_END, "RustFrontend"),
        (None, "MapWorker(x)"),
        (None, None),
    ],
)
def test_the_name_of_a_process_tells_its_part(expected: Role | None, process: str | None) -> None:
    """Workers, engines and front ends are told apart in every release's names."""
    assert expected is LogLine(1, "", process=process).role


def test_levels_are_ordered_words() -> None:
    """Letters, short forms and lower case mean the same levels."""
    texts = ["E1023 19:02:12.1 1 a.cpp:1] x", "WARN: x", '{"level":"error","msg":"x"}']
    assert [Level.ERROR, Level.WARNING, Level.ERROR] == [_one(text).level for text in texts]
