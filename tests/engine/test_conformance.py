"""
The rehearsal held against the real engine: the same flags, the same requests, the same sequences of prompts on both.

What may differ is listed in `conformance_differences.yaml` with a reason. A difference that is not listed fails, and so
does a listed one that no longer occurs: the list can only shrink.
"""

from __future__ import annotations

import json
import os
import random
import socket
import string
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from k3lib.launch.cpu_engine import EngineHome
from k3lib.launch.engines import start_engine
from k3lib.logs.lines import read_lines
from k3lib.logs.timeline import parse_timeline
from k3lib.spec.launch import LaunchPlan
from k3lib.spec.vocabulary import EngineKind, Milestone

HERE = Path(__file__).parent
REQUESTS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "conformance_requests.yaml").read_text("utf-8"))
LISTED: dict[str, str] = yaml.safe_load((HERE / "conformance_differences.yaml").read_text("utf-8"))
CHAT = "/v1/chat/completions"
KEY = "right"
ABSENT = "(absent)"
Facts = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One way to start both engines, and the sequences of prompts that are sent to them."""

    name: str
    model: str
    flags: tuple[str, ...] = ()
    sequences: tuple[str, ...] = ()


RESENT = tuple(f"resent {base}+{rest}" for base in (1024, 2304) for rest in (1, 128, 129, 255))
SETTINGS = (
    Setting("hybrid", "tiny-hybrid", sequences=(*RESENT, "sent three times", "shared by three")),
    Setting("hybrid, interval", "tiny-hybrid", ("--prefix-cache-retention-interval", "256"), RESENT[5:]),
    Setting("hybrid, off", "tiny-hybrid", ("--no-enable-prefix-caching",), ("resent 1024+1",)),
    Setting("dense", "tiny-dense", sequences=("resent 1152+46", "resent 1152+1", "shared by three")),
)


@dataclass
class Server:
    """A running engine, as a client sees it."""

    port: int
    overhead: int = field(default=0)

    def ask(self, path: str, data: bytes | None, method: str = "POST", key: str | None = KEY) -> tuple[int, str]:
        """Status and body."""
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def chat(self, text: str) -> dict[str, Any]:
        """The usage of one short answer."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 2, "temperature": 0}
        status, answer = self.ask(CHAT, json.dumps(body).encode())
        assert 200 == status, answer
        usage: dict[str, Any] = json.loads(answer)["usage"]
        return usage

    def measure_overhead(self) -> None:
        """Tokens that the chat format adds to a text; a sign of punctuation is one token on both engines."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": "." * 10}]}
        self.overhead = json.loads(self.ask("/tokenize", json.dumps(body).encode())[1])["count"] - 10

    def counter(self, name: str) -> float:
        """One counter of /metrics."""
        for family in text_string_to_metric_families(self.ask("/metrics", None, "GET")[1]):
            found = [sample.value for sample in family.samples if sample.name == f"vllm:{name}_total"]
            if found:
                return sum(found)
        raise AssertionError(f"{name} is not in /metrics")


def shape(value: Any) -> Any:
    """The fields of a JSON value and their types; a list is as its first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def read_answer(status: int, body: str) -> Facts:
    """What is compared of one answer: its status, its fields, and the text of a refusal."""
    facts: Facts = {"status": status}
    if body.startswith("data: "):
        events = [event.removeprefix("data: ") for event in body.strip().split("\n\n")]
        chunks = [json.loads(event) for event in events[:-1]]
        facts |= {"ends": events[-1], "shapes": [shape(chunk) for chunk in (*chunks[:2], *chunks[-2:])]}
        return facts
    answer = json.loads(body) if body else None
    facts["shape"] = shape(answer)
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        facts |= {key: answer["error"][key] for key in ("type", "param", "code", "message")}
    return facts


def ask_everything(server: Server) -> Iterator[tuple[str, Any]]:
    """Every request of the list."""
    for name, asked in REQUESTS.items():
        body = asked.get("body")
        if "like" in asked:
            body = REQUESTS[asked["like"]]["body"] | (body or {})
        data = asked["raw"].encode() if "raw" in asked else None
        if body is not None:
            data = json.dumps({key: value for key, value in body.items() if value is not None}).encode()
        status, text = server.ask(asked.get("path", CHAT), data, asked.get("method", "POST"), asked.get("key", KEY))
        for key, value in read_answer(status, text).items():
            yield f"request {name}: {key}", value


def read_metrics(text: str) -> Iterator[tuple[str, Any]]:
    """Type, labels and buckets of every family; type and labels of the cache's settings with their values."""
    for family in text_string_to_metric_families(text):
        if family.name == "vllm:cache_config_info":
            for label, value in family.samples[0].labels.items():
                yield f"cache setting {label}", value
        labels = sorted({label for sample in family.samples for label in sample.labels})
        buckets = sorted({sample.labels["le"] for sample in family.samples if "le" in sample.labels}, key=float)
        parts = sorted(
            {v for s in family.samples for k, v in s.labels.items() if k in {"reason", "source", "sleep_state"}}
        )
        yield f"metric {family.name}", (family.type, family.documentation, labels, buckets, parts)


def prompts_of(sequence: str, overhead: int) -> list[str]:
    """The texts of a sequence; the lengths are in tokens of the whole prompt, the signs drawn from its name."""
    draw = random.Random(sequence)

    def signs(tokens: int) -> str:
        return "".join(draw.choices(string.punctuation.replace("_", ""), k=tokens))

    if sequence.startswith("resent"):
        base, rest = sequence.removeprefix("resent ").split("+")
        return [signs(int(base) + int(rest) - overhead)] * 2
    if sequence == "sent three times":
        return [signs(1024 + 161 - overhead)] * 3
    shared = signs(1024 + 60 - overhead)
    return [shared + signs(100) for _ in range(3)]


def send_sequence(server: Server, sequence: str) -> list[Any]:
    """Cached tokens of each prompt, then how far the two counters moved."""
    names = ("prefix_cache_queries", "prefix_cache_hits")
    before = [server.counter(name) for name in names]
    texts = prompts_of(sequence, server.overhead)
    usages = [server.chat(text) for text in texts]
    assert {usage["prompt_tokens"] for usage in usages} == {len(text) + server.overhead for text in texts}
    moved = [server.counter(name) - earlier for name, earlier in zip(names, before, strict=True)]
    return [[usage["prompt_tokens_details"]["cached_tokens"] for usage in usages], *moved]


@contextmanager
def serve(home: EngineHome, setting: Setting, *, real: bool, log: Path) -> Iterator[Server]:
    """One engine, ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = (str(home.vllm),) if real else (sys.executable, "-m", "k3lib.rehearsal")
    played = {} if real else {"K3_REHEARSAL_RELEASE": "0.32.0+cpu"}
    plan = LaunchPlan(
        kind=EngineKind.LOCAL if real else EngineKind.REHEARSAL,
        argv=(
            *(*program, "serve", str(home.models / setting.model), "--host", "127.0.0.1", "--port", str(port)),
            *("--served-model-name", "tiny", "--enforce-eager", "--max-model-len", "4096", "--api-key", KEY),
            *("--enable-prompt-tokens-details", *setting.flags),
        ),
        env={
            **{"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CACHE_ROOT": str(home.cache), "VLLM_NO_USAGE_STATS": "1"},
            **played,
        },
        port=port,
        ready_timeout_s=180.0,
        stop_grace_s=10.0,
        token=f"conformance-{port}",
    )
    # The names of vLLM's sockets need 37 of the 107 characters a socket's path may have: no pytest folder.
    with tempfile.TemporaryDirectory(prefix="k3t-") as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", temporary)
        with log.open("ab") as file, start_engine(plan, file.fileno()) as engine:
            assert engine.wait_ready().ready, log.read_text("utf-8", errors="replace")[-3000:]
            yield Server(port)


def observe(home: EngineHome, setting: Setting, *, real: bool, folder: Path) -> Facts:
    """All that is compared of one setting on one engine."""
    log = folder / f"{setting.name}-{'real' if real else 'rehearsal'}.log"
    facts: Facts = {}
    with serve(home, setting, real=real, log=log) as server:
        server.measure_overhead()
        for sequence in setting.sequences:
            facts[f"{setting.name}: cache, {sequence}"] = send_sequence(server, sequence)
        if setting is SETTINGS[0]:
            facts |= {f"{setting.name}: {key}": value for key, value in ask_everything(server)}
        facts |= {
            f"{setting.name}: {key}": value for key, value in read_metrics(server.ask("/metrics", None, "GET")[1])
        }
    timeline = parse_timeline(read_lines(log.read_text("utf-8", errors="replace")))
    names = dict.fromkeys(hit.name for hit in timeline.milestones)
    # Whether the line of statistics falls into the run depends on how long the run takes.
    by_the_clock = {Milestone.CACHE_SIGNAL, Milestone.LOAD_SEEN}
    facts[f"{setting.name}: milestones"] = [name.value for name in names if name not in by_the_clock]
    return facts


@pytest.fixture(scope="module")
def seen(
    cpu_engine: EngineHome, make_models: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Facts, Facts]:
    """What the real engine and the rehearsal showed, in all settings."""
    subprocess.run([*make_models, "--into", str(cpu_engine.models)], check=True, capture_output=True, timeout=300)
    folder = tmp_path_factory.mktemp("conformance")
    real, rehearsed = (
        {key: value for one in SETTINGS for key, value in observe(cpu_engine, one, real=real, folder=folder).items()}
        for real in (True, False)
    )
    return real, rehearsed


GROUPS = ("milestones", "metric", "cache setting", "request", "cache, ")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", GROUPS)
def test_no_other_difference(seen: tuple[Facts, Facts], group: str) -> None:
    """In milestones, metrics, settings, answers and cache counters the listed differences occur and no others."""
    assert _listed(group) == _differences(*seen, group)


def _listed(group: str) -> Mapping[str, str]:
    return {name: "differs, as listed" for name in LISTED if name.partition(": ")[2].startswith(group)}


def _differences(real: Facts, rehearsed: Facts, group: str) -> Mapping[str, str]:
    found = {}
    for name in sorted(real.keys() | rehearsed.keys()):
        pair = real.get(name, ABSENT), rehearsed.get(name, ABSENT)
        if name.partition(": ")[2].startswith(group) and pair[0] != pair[1]:
            found[name] = "differs, as listed" if name in LISTED else f"real {pair[0]!r}, rehearsal {pair[1]!r}"
    return found


def test_every_listed_difference_has_a_reason_and_a_group() -> None:
    """A difference is listed with a sentence that says why, under a name that one of the comparisons looks at."""
    assert LISTED
    assert [] == [name for name, reason in LISTED.items() if len(str(reason).split()) < 4]
    assert [] == [name for name in LISTED if not name.partition(": ")[2].startswith(GROUPS)]


@pytest.mark.timeout(600)
def test_the_sequences_are_those_that_were_measured(seen: tuple[Facts, Facts]) -> None:
    """The real engine counts what it counted when the model was made: two silences are not compared."""
    real, _ = seen
    assert [[0, 1152], 2396.0, 1152.0] == real["dense: cache, resent 1152+46"]
    assert [[0, 0], 0.0, 0.0] == real["hybrid, off: cache, resent 1024+1"]
    assert [[0, 1024], 2304.0, 1024.0] == real["hybrid: cache, resent 1024+128"]
    assert [[0, 0], 2306.0, 0.0] == real["hybrid: cache, resent 1024+129"]
    assert [[0, 0], 4866.0, 0.0] == real["hybrid: cache, resent 2304+129"]
    assert [[0, 2048], 4866.0, 2048.0] == real["hybrid, interval: cache, resent 2304+129"]


@pytest.mark.timeout(300)
def test_vllm_bench_serve_runs_against_the_rehearsal(
    cpu_engine: EngineHome, make_models: list[str], tmp_path: Path
) -> None:
    """vLLM's own benchmark completes every request, and counts as many output tokens as it asked for."""
    subprocess.run([*make_models, "--into", str(cpu_engine.models)], check=True, capture_output=True, timeout=300)
    result, setting = tmp_path / "bench.json", Setting("bench", "tiny-hybrid")
    with serve(cpu_engine, setting, real=False, log=tmp_path / "engine.log") as server:
        words = [
            *(str(cpu_engine.vllm), "bench", "serve", "--backend", "openai-chat", "--endpoint", CHAT),
            *("--base-url", f"http://127.0.0.1:{server.port}", "--header", f"Authorization=Bearer {KEY}"),
            *("--model", "tiny", "--tokenizer", str(cpu_engine.models / setting.model)),
            *("--dataset-name", "random", "--num-prompts", "8", "--random-input-len", "64"),
            *("--random-output-len", "16", "--ignore-eos", "--save-result", "--result-filename", str(result)),
        ]
        environment = {**os.environ, "VLLM_CACHE_ROOT": str(cpu_engine.cache), "VLLM_NO_USAGE_STATS": "1"}
        subprocess.run(words, env=environment, check=True, capture_output=True, timeout=200)
    told = json.loads(result.read_text("utf-8"))
    assert (8, 0, 8 * 16) == (told["completed"], told["failed"], told["total_output_tokens"])
