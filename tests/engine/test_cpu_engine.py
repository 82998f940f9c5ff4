"""The CPU engine is installed as promised, serves the tiny hybrid model, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from k3lib.errors import LaunchError
from k3lib.launch.cpu_engine import (
    CPU_INDEX,
    ENGINE_VERSION,
    EngineHome,
    check_machine,
    install_engine,
    read_stamp,
    read_vector_level,
)
from k3lib.launch.engines import Engine, start_engine
from k3lib.spec.launch import LaunchPlan
from k3lib.spec.results import LaunchResult
from k3lib.spec.vocabulary import Ending, EngineKind

INSTALL = [sys.executable, "-m", "k3lib.launch.cpu_engine", "install", "--into"]


class TestInstall:
    """The installer."""

    def test_version(self, cpu_engine: EngineHome) -> None:
        """`vllm --version` prints the release that the stamp promises."""
        answer = subprocess.run([cpu_engine.vllm, "--version"], capture_output=True, text=True, check=True, timeout=60)
        assert ENGINE_VERSION == answer.stdout.split()[-1]

    def test_second_install_does_nothing(self, cpu_engine: EngineHome) -> None:
        """A second install says what is there, in half a second, and changes no file."""
        before = cpu_engine.log.stat().st_mtime_ns, cpu_engine.stamp.stat().st_mtime_ns
        began = time.monotonic()
        answer = subprocess.run([*INSTALL, cpu_engine.root], capture_output=True, text=True, check=True, timeout=60)
        assert time.monotonic() - began < 0.5
        stamp = read_stamp(cpu_engine)
        assert stamp is not None
        expected = f"torch {stamp['torch']}, Python {stamp['python']}"
        assert f"vllm {ENGINE_VERSION} is installed in {cpu_engine.venv} ({expected})\n" == answer.stdout
        assert before == (cpu_engine.log.stat().st_mtime_ns, cpu_engine.stamp.stat().st_mtime_ns)

    def test_cpu_build_of_torch_absent(self, tmp_path: Path) -> None:
        """Without torch's CPU build the install ends in four lines that name its index, and exit code 2."""
        half_made = EngineHome(tmp_path).venv / "half-made"
        half_made.mkdir(parents=True)
        nothing = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | nothing
        answer = subprocess.run([*INSTALL, tmp_path], env=environment, capture_output=True, text=True, timeout=120)
        what, expected, evidence, following = answer.stderr.splitlines()
        assert "LaunchError: torch 2.13.0+cpu cannot be had; no engine was installed" == what
        assert f"  expected: that build from {CPU_INDEX}, or as a wheel that this machine's pip finds" == expected
        assert evidence.endswith("satisfies the requirement torch==2.13.0+cpu (from versions: none)")
        assert following.startswith(f"  next:     set PIP_EXTRA_INDEX_URL to the address of {CPU_INDEX} and repeat")
        assert 2 == answer.returncode
        assert not half_made.exists(), "a half-made environment was built upon"
        assert read_stamp(EngineHome(tmp_path)) is None

    def test_other_machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A machine that the wheel is not built for is refused before anything is written."""
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
        with pytest.raises(LaunchError, match="cannot run on this machine") as refusal:
            install_engine(EngineHome(tmp_path / "engine"), print)
        assert refusal.value.evidence.endswith("on aarch64")
        assert not (tmp_path / "engine").exists()

    def test_no_space(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Too little space is refused with what is free and what is needed."""
        monkeypatch.setattr("k3lib.launch.cpu_engine.NEEDED_BYTES", 1 << 60)
        with pytest.raises(LaunchError, match="too little space"):
            check_machine(EngineHome(tmp_path / "not" / "there" / "yet"))

    @pytest.mark.parametrize(
        ("flags", "level"),
        [("fpu avx avx2 avx512f", "avx512"), ("fpu avx avx2", "avx2"), ("fpu avx avx512_bf16x", None)],
    )
    def test_vector_level(self, tmp_path: Path, flags: str, level: str | None) -> None:
        """The processor's widest usable instructions are read as whole words from the kernel's list."""
        cpuinfo = tmp_path / "cpuinfo"
        cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: avx2\n", encoding="utf-8")
        assert level == read_vector_level(cpuinfo)

    def test_stamp_of_other_release(self, tmp_path: Path) -> None:
        """The stamp of another release does not count as installed."""
        home = EngineHome(tmp_path)
        home.vllm.parent.mkdir(parents=True)
        home.vllm.touch()
        home.python.touch()
        stamp = {"engine": ENGINE_VERSION, "torch": "2.13.0+cpu", "python": "3.11.7"}
        home.stamp.write_text(json.dumps(stamp), encoding="utf-8")
        assert stamp == read_stamp(home)
        home.stamp.write_text(json.dumps(stamp | {"engine": "0.31.0+cpu"}), encoding="utf-8")
        assert read_stamp(home) is None


class TestModels:
    """The maker of tiny models."""

    def test_same_seed_same_weights(self, make_models: list[str], tmp_path: Path) -> None:
        """Made twice, a model is the same to the byte; made a second time in one place, it is left alone."""
        command = [*make_models, "--only", "tiny-dense", "--into"]
        said = [
            subprocess.run([*command, folder], capture_output=True, text=True, check=True, timeout=120).stdout
            for folder in (tmp_path / "a", tmp_path / "b", tmp_path / "b")
        ]
        weights = [(tmp_path / folder / "tiny-dense" / "model.safetensors").read_bytes() for folder in "ab"]
        assert weights[0] == weights[1]
        assert f"tiny-dense   is there: {tmp_path / 'b' / 'tiny-dense'}\n" == said[2]
        assert ["tiny-dense"] == os.listdir(tmp_path / "b"), "a draft was left"

    def test_wrong_python(self, cpu_engine: EngineHome, tmp_path: Path) -> None:
        """A Python without torch is told which one to use."""
        script = Path(__file__).parents[2] / "k3lib" / "launch" / "tiny_models.py"
        answer = subprocess.run(
            [sys.executable, script, "--into", tmp_path], capture_output=True, text=True, timeout=60, check=False
        )
        assert 2 == answer.returncode
        assert "  next:     run this script with .engine/venv/bin/python" == answer.stderr.splitlines()[-1]

    def test_note(self, tiny_hybrid: Path) -> None:
        """The model's folder says that its weights are random, and its config holds the layers of K3's cache class."""
        assert "Random weights (seed 0)" in (tiny_hybrid / "MODEL.md").read_text(encoding="utf-8")
        config = json.loads((tiny_hybrid / "config.json").read_text(encoding="utf-8"))
        assert ["linear_attention"] * 3 + ["full_attention"] == config["layer_types"]


@dataclass
class Traces:
    """What an engine held while it ran, so that its absence can be looked for afterwards."""

    port: int
    temporary: Path
    processes: list[psutil.Process] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    shared_memory: set[Path] = field(default_factory=set)
    temporary_files: list[str] = field(default_factory=list)

    def gather(self, engine: Engine) -> None:
        """Look at the running engine."""
        assert engine.pid is not None
        first = psutil.Process(engine.pid)
        self.processes = [first, *first.children(recursive=True)]
        self.names = {process.name() for process in self.processes}
        for process in self.processes:
            maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8").splitlines()
            self.shared_memory |= {Path(line.split()[5]) for line in maps if "/dev/shm/" in line}
        self.temporary_files = [path.name for path in self.temporary.rglob("*")]

    def left(self) -> list[str]:
        """Whatever is still there: process, shared memory, temporary file, port."""
        alive = [str(p) for p in self.processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        files = [str(path) for path in [*self.shared_memory, *self.temporary.rglob("*")] if path.exists()]
        with socket.socket() as probe:
            taken = [f"port {self.port}"] if probe.connect_ex(("127.0.0.1", self.port)) == 0 else []
        return alive + files + taken


@contextmanager
def running(home: EngineHome, model: Path, folder: Path, *, grace_s: float) -> Iterator[tuple[Engine, Traces]]:
    """A served tiny hybrid model whose log lies in `folder`; its traces are gathered before it is handed out."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plan = LaunchPlan(
        kind=EngineKind.LOCAL,
        argv=(
            *(str(home.vllm), "serve", str(model), "--host", "127.0.0.1", "--port", str(port)),
            *("--served-model-name", "tiny", "--enforce-eager", "--no-enable-prefix-caching"),
            *("--max-model-len", "4096", "--enable-prompt-tokens-details"),
            *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        ),
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CACHE_ROOT": str(home.cache), "VLLM_NO_USAGE_STATS": "1"},
        port=port,
        ready_timeout_s=180.0,
        stop_grace_s=grace_s,
        token=f"engine-test-{port}",
        model_path=str(model),
    )
    with (
        # The names of vLLM's sockets need 37 of the 107 characters a socket's path may have: no pytest folder.
        tempfile.TemporaryDirectory(prefix="k3t-") as temporary,
        pytest.MonkeyPatch.context() as patch,
        (folder / "engine.log").open("ab") as log,
    ):
        patch.setattr(tempfile, "tempdir", temporary)
        traces = Traces(port, Path(temporary))
        with start_engine(plan, log.fileno()) as engine:
            start = engine.wait_ready()
            assert start.ready, (folder / "engine.log").read_text(encoding="utf-8", errors="replace")[-3000:]
            traces.gather(engine)
            yield engine, traces


def send(engine: Engine, path: str, body: dict[str, Any] | None = None) -> str:
    """One request to a running engine; the text of its answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(engine.base_url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def chat(**more: Any) -> dict[str, Any]:
    """A chat request of 24 tokens at most, with every role that an agent's conversation holds."""
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}
    messages = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": [{"type": "text", "text": "What does a.txt say?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Nothing yet."},
        {"role": "user", "content": "Explain that."},
    ]
    return {"model": "tiny", "messages": messages, "max_tokens": 24, "temperature": 0, **more}


@dataclass
class Visit:
    """One healthy life of the engine: its answers, its end, and what was left."""

    answers: dict[str, Any]
    stream: str
    metrics: str
    result: LaunchResult
    traces: Traces
    left: list[str]


@pytest.fixture(scope="module")
def visit(cpu_engine: EngineHome, tiny_hybrid: Path, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    """Start the engine once, ask it everything, stop it."""
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}
    with running(cpu_engine, tiny_hybrid, tmp_path_factory.mktemp("healthy"), grace_s=10) as (engine, traces):
        answers = {
            "version": json.loads(send(engine, "/version")),
            "models": json.loads(send(engine, "/v1/models")),
            "first": json.loads(send(engine, "/v1/chat/completions", chat())),
            "again": json.loads(send(engine, "/v1/chat/completions", chat())),
            "tools": json.loads(send(engine, "/v1/chat/completions", chat(tools=[tool]))),
        }
        stream = send(engine, "/v1/chat/completions", chat(stream=True, stream_options={"include_usage": True}))
        metrics = send(engine, "/metrics")
        result = engine.stop()
        left = traces.left()
    return Visit(answers, stream, metrics, result, traces, left)


@pytest.mark.timeout(300)
class TestServing:
    """The real engine on the tiny hybrid model."""

    def test_version_and_model(self, visit: Visit) -> None:
        """The served release is the installed one without its local part, and the model has the asked context."""
        assert {"version": "0.32.0"} == visit.answers["version"]
        assert [("tiny", 4096)] == [(m["id"], m["max_model_len"]) for m in visit.answers["models"]["data"]]

    def test_answer(self, visit: Visit) -> None:
        """A greedy answer is printable, as long as the limit, and the same twice."""
        choice = visit.answers["first"]["choices"][0]
        assert 24 == visit.answers["first"]["usage"]["completion_tokens"] == len(choice["message"]["content"])
        assert choice["message"]["content"].isascii()
        assert choice["message"]["content"].isprintable()
        assert "length" == choice["finish_reason"]
        assert choice["message"] == visit.answers["again"]["choices"][0]["message"]

    def test_stream(self, visit: Visit) -> None:
        """A streamed answer has a chunk per token and the same text."""
        events = [line.removeprefix("data: ") for line in visit.stream.splitlines() if line.startswith("data: ")]
        assert "[DONE]" == events[-1]
        choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
        texts = [choice["delta"]["content"] for choice in choices if choice["delta"].get("content")]
        assert 24 == len(texts)
        assert visit.answers["first"]["choices"][0]["message"]["content"] == "".join(texts)

    def test_tools_reach_the_prompt(self, visit: Visit) -> None:
        """The chat template renders tools: the prompt grows by what describes them."""
        tokens = {name: visit.answers[name]["usage"]["prompt_tokens"] for name in ("first", "tools")}
        assert tokens["tools"] > tokens["first"] + len('"name": "read_file"')

    def test_prefix_caching_is_off(self, visit: Visit) -> None:
        """With caching off, a repeated prompt is not even looked up."""
        lines = visit.metrics.splitlines()
        assert ['vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 0.0'] == [
            line for line in lines if line.startswith("vllm:prefix_cache_queries_total")
        ]
        assert 0 == visit.answers["again"]["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_asked_stop_leaves_nothing(self, visit: Visit) -> None:
        """After an asked stop: exit code 0, and of its processes, shared memory, files and port nothing is left."""
        assert {"vllm", "VLLM::EngineCore", "VLLM::Worker"} <= visit.traces.names
        assert len(visit.traces.shared_memory) >= 2
        assert any(name.startswith("vllm_dist_") for name in visit.traces.temporary_files)
        assert (Ending.STOPPED, []) == (visit.result.ending, visit.result.leftovers)
        assert visit.result.exit is not None
        assert 0 == visit.result.exit.code
        assert [] == visit.left

    def test_hard_stop_leaves_nothing(self, cpu_engine: EngineHome, tiny_hybrid: Path, tmp_path: Path) -> None:
        """An engine that must be killed leaves nothing either, shared memory included."""
        with running(cpu_engine, tiny_hybrid, tmp_path, grace_s=0) as (engine, traces):
            result = engine.stop()
            left = traces.left()
        assert "SIGKILL" == (result.exit.signal if result.exit else None)
        assert [] == left
