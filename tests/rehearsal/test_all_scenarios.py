"""
Every scenario as a process: it fails where its label says, and shows itself by the evidence that its label names.

The engine runs by itself, without a session, so that what is read is its log alone. Its clock is scaled: no latency is
looked at.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from k3lib.knowledge.scenarios import Scenario, list_scenarios
from k3lib.logs.lines import read_lines
from k3lib.logs.timeline import parse_timeline
from k3lib.rehearsal.config import read_stage
from k3lib.rehearsal.machine import PretendMachine
from k3lib.workbook.triage import triage

FLAGS = (
    "--tensor-parallel-size 8 --kv-cache-dtype fp8 --gpu-memory-utilization 0.95 --enable-prompt-tokens-details "
    "--enable-prefix-caching --max-model-len 16384"
)
# Requests that must meet in the engine take seconds, so that a slow machine lets them meet.
SERVE_SPEED = {"oom-concurrency": "4", "preemption-storm": "4", "queue-growth": "8"}
LONG = {"oom-long-context": ("--max-model-len", "131072")}
BY_NAME = {scenario.name: scenario for scenario in list_scenarios()}
SEEDS_THAT_DRAW = {"intermittent": "2", "moved-tag": "1"}
LONGEST_S = 40.0


@dataclass
class Played:
    """One engine that was started for a scenario, and what clients were told."""

    scenario: Scenario
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    statuses: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def ask(self, path: str, body: Any = None, timeout_s: float = LONGEST_S) -> tuple[int, bytes]:
        """Status and body; 0 where no answer came."""
        data = None if body is None else json.dumps(body).encode()
        url, headers = f"http://127.0.0.1:{self.port}{path}", {"content-type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=timeout_s) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, ValueError):
            return 0, b""

    def chat(self, text: str, timeout_s: float = LONGEST_S, **options: Any) -> int:
        """One request; its status and text are kept."""
        options.setdefault("chat_template_kwargs", {"thinking": False})
        body = {"messages": [{"role": "user", "content": text}], **options}
        status, answer = self.ask("/v1/chat/completions", body, timeout_s)
        self.statuses.append(status)
        if status == 200:
            self.texts.append(json.loads(answer)["choices"][0]["message"]["content"] or "")
        return status

    def wait_started(self) -> bool:
        """Until it is ready; False if it ended before."""
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            if self.ask("/health", timeout_s=2)[0] == 200:
                return True
            time.sleep(0.05)
        raise AssertionError(f"neither ready nor ended:\n{self.log.read_text()[-3000:]}")

    def metric(self, name: str) -> float:
        """One sample of /metrics by its name, summed over its labels."""
        lines = self.ask("/metrics")[1].decode().splitlines()
        found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        assert found, f"{name} is not in /metrics"
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Played]]:
    """Starts the engine of a scenario; it is gone when the test is."""
    started: list[Played] = []

    def begin(name: str, *flags: str, **variables: str) -> Played:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = tmp_path / f"{name}.log"
        words = f"serve moonshotai/Kimi-K3 --host 127.0.0.1 --port {port} {FLAGS}".split()
        words += [*LONG.get(name, ()), *flags]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("K3_", "VLLM_"))}
        chosen = {
            "K3_REHEARSAL_SCENARIO": name,
            "K3_REHEARSAL_SEED": SEEDS_THAT_DRAW.get(name, "0"),
            "K3_REHEARSAL_SPEED": "100000",
            "K3_REHEARSAL_SERVE_SPEED": SERVE_SPEED.get(name, "100"),
            "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
        }
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "k3lib.rehearsal", *words],
                stdout=sink, stderr=sink, env={**kept, **chosen, **variables}, start_new_session=True,
            )  # fmt: skip
        started.append(Played(BY_NAME[name], process, port, log))
        return started[-1]

    yield begin
    for played in started:
        if played.process.poll() is None:
            played.process.send_signal(signal.SIGKILL)
        played.process.wait(10)


def prompt_of(tokens: int, opening: str = "") -> str:
    """A prompt of about so many tokens; the tokenizer gives one for each short word."""
    return f"{opening} " + "one two three four " * (tokens // 4)


def at_once(played: Played, count: int, prompt: str, **options: Any) -> None:
    """Requests that run at the same time, to their end."""
    threads = [
        threading.Thread(target=played.chat, args=(f"{index} {prompt}",), kwargs=options) for index in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


TRIGGERS: dict[str, Callable[[Played], None]] = {
    "start": lambda played: None,
    "request": lambda played: played.chat("Hello.", timeout_s=2) and None,
    "requests": lambda played: [played.chat(f"Hello {number}.") for number in range(4)] and None,
    "shared-prefix": lambda played: [played.chat(prompt_of(4000), max_tokens=40) for _ in range(3)] and None,
    "long-context": lambda played: played.chat(prompt_of(110_000), timeout_s=15) and None,
    "concurrency": lambda played: at_once(played, 16, prompt_of(200), max_tokens=300, ignore_eos=True),
}
FAILING = [name for name, one in BY_NAME.items() if one.label.exit is not None]


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_stands_where_its_label_says(play: Any, name: str) -> None:
    """The engine ends with its label's exit code, and its log's timeline stands in its label's phase."""
    played = play(name)
    label = played.scenario.label
    if played.wait_started():
        assert "start" != label.trigger, "it started"
        TRIGGERS[label.trigger](played)
    assert label.exit == played.process.wait(LONGEST_S)
    text = played.log.read_text()
    assert parse_timeline(read_lines(text)).phase.value in label.log.phase
    read = triage(str(played.log)).failure
    assert read.failed
    assert (read.phase in label.log.phase, read.oom in label.log.oom) == (True, True), read
    assert (read.route in label.log.route, read.domain in label.log.domain) == (True, True), read
    told = "OutOfMemoryError" in text or "is less than desired GPU memory utilization" in text
    assert told == (label.oom in {"root", "secondary"})
    assert all(status in {200, 500, 0} for status in played.statuses)


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in FAILING])
def test_a_scenario_that_runs_on_looks_healthy(play: Any, name: str) -> None:
    """Where the log shows nothing, the start is ready, no error stands in it, and SIGTERM ends it in order."""
    played = play(name)
    assert played.wait_started()
    played.process.send_signal(signal.SIGTERM)
    assert 0 == played.process.wait(LONGEST_S)
    text = played.log.read_text()
    assert "ERROR" not in text
    assert "Traceback" not in text
    assert parse_timeline(read_lines(text)).ready
    assert not triage(str(played.log)).failure.failed


def test_the_machine_tells_what_the_log_does_not(play: Any, tmp_path: Path) -> None:
    """A worker killed for memory leaves no word in the log; with the kernel's log beside it the reason is certain."""
    played = play("host-oom")
    assert not played.wait_started()
    label, folder = played.scenario.label, tmp_path / "incident"
    folder.mkdir()
    (folder / "engine.log").write_text(played.log.read_text())
    stage = read_stage({"K3_REHEARSAL_SCENARIO": "host-oom"})
    (folder / "dmesg.log").write_text(PretendMachine(stage).run(["dmesg"]).out)
    read = triage(str(folder)).failure
    assert (label.phase, label.oom, label.domain) == (read.phase, read.oom, read.domain)


def test_hang(play: Any) -> None:
    """Health is green, the request counts as running, no token comes."""
    played = play("hang")
    assert played.wait_started()
    assert 0 == played.chat("Hello.", timeout_s=1.5)
    assert 200 == played.ask("/health")[0]
    assert 0 == played.metric("vllm:generation_tokens_total")


def test_silent_corruption(play: Any) -> None:
    """The same request answers otherwise once its prefix comes from the cache; nothing else tells."""
    played = play("silent-corruption")
    assert played.wait_started()
    TRIGGERS["shared-prefix"](played)
    first, *others = played.texts
    assert [200] * 3 == played.statuses
    assert {first} != {*others}
    assert 1 == len({*others})
    assert 0 < played.metric("vllm:prefix_cache_hits_total")


def test_preemption_storm(play: Any) -> None:
    """More requests than the pool holds: all are answered, and the counter of preemptions has moved."""
    played = play("preemption-storm")
    assert played.wait_started()
    at_once(played, 12, prompt_of(1480), max_tokens=200, ignore_eos=True)
    assert [200] * 12 == played.statuses
    assert 3 <= played.metric("vllm:num_preemptions_total")


def test_queue_growth(play: Any) -> None:
    """Requests that come faster than they are prefilled: the queue grows while two thirds of the pool stay free."""
    played = play("queue-growth")
    assert played.wait_started()
    threads = [
        threading.Thread(target=played.chat, args=(prompt_of(6000, str(number)),), kwargs={"max_tokens": 2})
        for number in range(12)
    ]
    waiting, usage = [], []
    for thread in threads:
        thread.start()
        time.sleep(0.25)
        waiting.append(played.metric("vllm:num_requests_waiting"))
        usage.append(played.metric("vllm:kv_cache_usage_perc"))
    assert waiting[-1] >= waiting[5] + 3 >= 4, waiting
    assert max(usage) <= 0.5, usage
    assert 0 == played.metric("vllm:num_preemptions_total")
    for thread in threads:
        thread.join()
    assert [200] * 12 == played.statuses


def test_livelock(play: Any) -> None:
    """A prompt within the pool's advertised capacity is preempted again and again; a shorter one is answered."""
    played = play("livelock")
    assert played.wait_started()
    assert 200 == played.chat(prompt_of(8000), max_tokens=2)
    assert 0 == played.chat(prompt_of(15_900), timeout_s=3, max_tokens=2)
    before = played.metric("vllm:num_preemptions_total")
    assert 1 < before
    assert 200 == played.ask("/health")[0]


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("oom-profiling", ("--max-num-batched-tokens", "4096")),
        ("oom-graph-capture", ("--gpu-memory-utilization", "0.90")),
        ("oom-graph-capture", ("--enforce-eager",)),
        ("oom-first-request", ("--gpu-memory-utilization", "0.85")),
        ("oom-long-context", ("--gpu-memory-utilization", "0.90")),
        ("oom-concurrency", ("--max-num-seqs", "8")),
        ("kv-too-small", ("--max-model-len", "1024")),
        ("co-tenant", ("--gpu-memory-utilization", "0.5", "--kv-cache-memory-bytes", "1G")),
    ],
)
def test_what_would_cure_it_cures_it(play: Any, name: str, cure: tuple[str, ...]) -> None:
    """A failure follows from a sum, so the setting that changes the sum ends it; a co-tenant stays whatever is set."""
    played = play(name, *cure)
    if name == "co-tenant":
        assert not played.wait_started()
        return
    assert played.wait_started()
    TRIGGERS[played.scenario.label.trigger](played)
    assert {200} >= set(played.statuses)
    assert played.process.poll() is None


def test_debug_variables_slow_the_engine_down(play: Any) -> None:
    """Variables left behind show in the log, and the same tokens take three times as long in one run's own counters."""
    took = []
    for name in ("healthy", "debug-left"):
        played = play(name)
        assert played.wait_started()
        played.chat("Go.", max_tokens=100, ignore_eos=True)
        took.append(played.metric("vllm:request_decode_time_seconds_sum"))
        assert ("NCCL INFO" in played.log.read_text()) == (name == "debug-left")
    assert took[1] > 1.5 * took[0]


def test_a_moved_tag_mixes_series(play: Any) -> None:
    """Starts behind a moved tag size another KV cache than those before it."""
    sizes = set()
    for seed in ("0", "1", "2", "3", "4", "5"):
        played = play("moved-tag", K3_REHEARSAL_SEED=seed)
        assert played.wait_started()
        sizes.add(parse_timeline(read_lines(played.log.read_text())).values.kv_cache_tokens)
        played.process.kill()
    assert 2 == len(sizes)
