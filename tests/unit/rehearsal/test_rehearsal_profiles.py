"""The releases that the rehearsal plays: each says, knows and defaults what its sources say, and never hides itself."""

from __future__ import annotations

import os
import string
import subprocess
import sys
import time
from typing import Any

import openai
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from k3lib.errors import KnowledgeError
from k3lib.knowledge.profiles import DEFAULT_RELEASE, find_profile, list_profiles
from k3lib.knowledge.versions import parse_release
from k3lib.logs.lines import read_lines
from k3lib.logs.timeline import Timeline, parse_timeline
from k3lib.rehearsal.arguments import parse_arguments, unknown_variables
from k3lib.spec.vocabulary import Phase

PREVIEW = "0.1.dev19262+gb6bbf29dd.d20260727"
RETENTION = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
PLAYED = [profile.program for profile in list_profiles() if profile.platform == "gpu"]
LONG = "alpha beta gamma delta " * 2100


def timeline_of(running: Any) -> Timeline:
    """What k3lib reads in the log."""
    return parse_timeline(read_lines(running.log))


@pytest.mark.parametrize("release", PLAYED)
@pytest.mark.parametrize("front_end", ["python", "rust"])
@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_every_combination_is_read_as_what_it_plays(start: Any, release: str, front_end: str, runner: str) -> None:
    """Release, front end and model runner are told from the log by the same reader that reads a real one."""
    variables = {
        "K3_REHEARSAL_RELEASE": release,
        "VLLM_USE_RUST_FRONTEND": str(int(front_end == "rust")),
        "VLLM_USE_V2_MODEL_RUNNER": str(int(runner == "v2")),
    }
    seen = timeline_of(start(**variables).wait_ready())
    assert (Phase.SERVING, True, 1) == (seen.phase, seen.ready, seen.launches)
    assert (front_end, runner) == (seen.values.front_end, seen.values.runner)
    told = parse_release(seen.values.version)
    assert told.rehearsal
    assert parse_release(release).public == told.public
    assert (1536, 57.06) == (seen.values.block_size_tokens, seen.values.kv_available_gib)
    assert seen.values.kv_cache_tokens
    assert seen.values.max_concurrency


@pytest.mark.parametrize("release", PLAYED)
@pytest.mark.parametrize("rust", ["0", "1"])
def test_it_says_rehearsal_everywhere(start: Any, release: str, rust: str) -> None:
    """First line, banner, /version, the answer's fingerprint and --version say so, whatever release is played."""
    running = start(K3_REHEARSAL_RELEASE=release, VLLM_USE_RUST_FRONTEND=rust).wait_ready()
    version = running.ask("/version")[1]["version"]
    assert find_profile(release).version == version
    assert parse_release(version).rehearsal
    assert "REHEARSAL: this is the stand-in engine" in running.log.splitlines()[0]
    assert f"version {version}" in running.log
    assert f"vllm-{version}" == running.chat("Hello.", max_tokens=1)[1]["system_fingerprint"]
    asked = [sys.executable, "-m", "k3lib.rehearsal", "--version"]
    environment = {**os.environ, "K3_REHEARSAL_RELEASE": release}
    said = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=20, check=True).stdout
    assert f"{find_profile(release).program_version}\n" == said


@pytest.mark.parametrize(
    ("release", "caching", "interval", "runner"),
    [
        ("0.33.0", True, 0, "v2"),
        ("0.28.0", True, None, "v1"),
        (PREVIEW, False, None, "v1"),
        ("0.32.0+cpu", True, 0, "v1"),
    ],
)
def test_defaults(release: str, caching: bool, interval: int | None, runner: str) -> None:
    """Caching of hybrid models is off until 0.28; retention is dense while a variable sets it, 0 since a flag does."""
    profile = find_profile(release)
    assert (caching, interval, runner) == (profile.hybrid_caching, profile.retention.default, profile.runner)
    assert (profile.retention.variable is None) == (profile.retention.flag is not None)


@pytest.mark.parametrize(
    ("release", "variables", "cached"),
    [
        ("0.33.0", {}, 7680),
        ("0.28.0", {}, 7680),
        (PREVIEW, {}, 0),
    ],
)
def test_the_default_of_caching_shows_in_the_counters(
    start: Any, release: str, variables: dict[str, str], cached: int
) -> None:
    """A prompt sent twice without a word on caching is found from 0.28 on; on the preview not even looked up."""
    running = start(
        "--enable-prompt-tokens-details", "--max-model-len", "32768", K3_REHEARSAL_RELEASE=release, **variables
    ).wait_ready()
    usages = [running.chat(LONG, max_tokens=2)[1]["usage"] for _ in range(2)]
    tokens = usages[0]["prompt_tokens"]
    expected = (tokens - 1) // 1536 * 1536 if cached else 0
    assert [0, expected] == [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert (2 * tokens if cached else 0) == running.counter("vllm:prefix_cache_queries_total")
    mode = "align" if cached else "none"
    assert f'mamba_cache_mode="{mode}"' in running.ask("/metrics")[1].decode()
    assert f"Mamba cache mode is set to '{mode}'" in running.log


@pytest.mark.parametrize(("release", "warned"), [("0.33.0", True), ("0.28.0", False), (PREVIEW, False)])
def test_the_retention_variable(start: Any, release: str, warned: bool) -> None:
    """It sets the interval while it is the control, and is only warned of once the flag has taken over."""
    running = start(K3_REHEARSAL_RELEASE=release, **{RETENTION: "1536"}).wait_ready()
    assert warned == (f"Unknown vLLM environment variable detected: {RETENTION}" in running.log)
    interval = "0" if warned else "1536"
    assert f'prefix_cache_retention_interval="{interval}"' in running.ask("/metrics")[1].decode()


def test_the_retention_flag_is_unknown_before_it_came(start: Any) -> None:
    """0.28 ends at the flag of 0.29 with argparse's text and exit code 2."""
    running = start("--prefix-cache-retention-interval", "0", K3_REHEARSAL_RELEASE="0.28.0")
    assert 2 == running.wait_end()
    assert running.log.endswith("vllm: error: unrecognized arguments: --prefix-cache-retention-interval 0\n")


def test_flags_and_variables_follow_the_release() -> None:
    """Abbreviations, choices and known variables are those of the release that is played."""
    newest, older, preview = (find_profile(release) for release in ("0.33.0", "0.28.0", PREVIEW))
    words = ["serve", "m", "--mamba-cache-mode", "all"]
    assert "all" == parse_arguments(words, older)["mamba_cache_mode"]
    with pytest.raises(SystemExit) as refused:
        parse_arguments(words, newest)
    assert 2 == refused.value.code
    short = ["serve", "m", "--prefix-cache-ret", "256"]
    assert 256 == parse_arguments(short, newest)["prefix_cache_retention_interval"]
    shared = {"VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT": "1"}
    assert [[], [], list(shared)] == [unknown_variables(shared, profile) for profile in (newest, older, preview)]


def test_an_unknown_release_is_refused(start: Any) -> None:
    """What nobody looked at is not played: four lines that name what can be, exit code 2."""
    running = start(K3_REHEARSAL_RELEASE="0.30.0")
    assert 2 == running.wait_end()
    what, expected, evidence, following = running.log.splitlines()
    assert "KnowledgeError: the rehearsal cannot play release '0.30.0'" == what
    assert all(profile.program in expected for profile in list_profiles())
    assert "  evidence: K3_REHEARSAL_RELEASE=0.30.0" == evidence
    assert "engine.version" in following


def test_the_release_is_found_by_each_of_its_names() -> None:
    """As the campaign writes it, as /version says it, and as --version says it."""
    for profile in list_profiles():
        names = (profile.name, profile.program, profile.program_version)
        assert [profile.name] * 3 == [find_profile(name).name for name in names]
    assert DEFAULT_RELEASE == find_profile().name
    with pytest.raises(KnowledgeError):
        find_profile("latest")


def test_every_line_has_a_place_and_a_speaker() -> None:
    """In every combination: a line with a prefix says where it comes from, one without says nothing of the kind."""
    for profile in list_profiles():
        for rust in (False, True):
            for key, line in find_profile(profile.name, rust=rust).lines.items():
                if line:
                    assert bool(line.at) == (line.by not in {"stderr", "stdout"}), (profile.name, key)
                    assert all(
                        name is None or name.isidentifier() for _, name, *_ in string.Formatter().parse(line.text)
                    )


class TestRust:
    """0.33.0 behind the Rust front end."""

    @pytest.fixture
    def running(self, start: Any) -> Any:
        """An engine that writes its statistics every modelled second."""
        return start(VLLM_USE_RUST_FRONTEND="1", VLLM_LOG_STATS_INTERVAL="1", K3_REHEARSAL_SERVE_SPEED="1").wait_ready()

    def test_the_log_has_its_words_and_none_of_uvicorns(self, running: Any) -> None:
        """Ready by its own line; no line of uvicorn, no access log; the supervisor's lines have no prefix."""
        assert "OpenAI server is ready to accept requests bind_address=127.0.0.1:" in running.log
        assert "Application startup complete." not in running.log
        running.ask("/v1/models")
        assert "GET /v1/models" not in running.log
        assert "APIServer" not in running.log
        assert running.log.index("Launching Rust frontend") < running.log.index("Initializing a V1 LLM engine")
        assert running.log.index("init engine (") < running.log.index("starting vLLM server")

    def test_statistics_always_have_a_hit_rate(self, running: Any) -> None:
        """Its line of statistics shows 0.0 % where the Python one leaves the rate out."""
        running.chat("Hello.", max_tokens=30, ignore_eos=True)
        line = ""
        end = time.monotonic() + 10
        while not line and time.monotonic() < end:
            line = next((text for text in running.log.splitlines() if "Avg prompt tput" in text), "")
            time.sleep(0.05)
        assert "(RustFrontend pid=" in line
        assert line.endswith("Prefix cache hit rate: 0.0%")
        assert "Reqs Running: " in line

    def test_refusals_are_openais(self, running: Any) -> None:
        """Errors carry OpenAI's types and a code in words; unknown routes have no body at all."""
        status, answer = running.chat("Hello.", model="nope")
        error = {
            "message": "The model `nope` does not exist.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        assert (404, {"error": error}) == (status, answer)
        codes = [running.ask("/v1/chat/completions", body)[1]["error"]["code"] for body in (b"{", b'{"messages": []}')]
        assert ["json_parse_error", "invalid_request_error"] == codes
        assert (404, b"") == running.ask("/nowhere")
        assert (404, b"") == running.ask("/ping")

    def test_metrics_are_openmetrics_and_fewer(self, running: Any) -> None:
        """The exposition ends with EOF, keeps the core's names, and lacks what the Rust front end does not have."""
        running.chat("Hello.", max_tokens=2)
        text = running.ask("/metrics")[1].decode()
        names = {family.name for family in text_string_to_metric_families(text)}
        assert {"vllm:prefix_cache_queries", "vllm:kv_cache_usage_perc", "vllm:num_preemptions"} <= names
        absent = {"vllm:cache_config_info", "vllm:engine_sleep_state", "vllm:mm_cache_hits", "python_info"}
        assert set() == absent & names
        assert "_created" not in text
        assert text.endswith("# EOF\n")

    def test_the_official_client_understands_it(self, running: Any) -> None:
        """Streamed with the openai client: the text, the usage and the error class."""
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none", max_retries=0)
        asked: dict[str, Any] = {
            "model": "moonshotai/Kimi-K3",
            "messages": [{"role": "user", "content": "Say something."}],
            "max_tokens": 12,
        }
        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        assert 12 == chunks[-1].usage.completion_tokens
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(**asked | {"model": "nope"})
