"""Reading an engine's state and sampling it, against a real server on the loopback."""

from __future__ import annotations

import io
import json
import os
import time
from typing import Any

import pytest

from k3lib.errors import SpecError
from k3lib.measure.effective import read_endpoint
from k3lib.measure.scrape import Sampler, read_tree_rss_bytes, scrape_metrics
from k3lib.spec.results import ServedModel


@pytest.fixture
def vllm(engine: Any, replies: Any) -> Any:
    """The loopback server with what vLLM 0.32.0 answered."""
    engine.routes["/version"] = replies.whole(replies.recorded("version"))
    engine.routes["/v1/models"] = replies.whole(replies.recorded("v1_models"))
    engine.routes["/metrics"] = replies.whole(replies.recorded("metrics"), content_type="text/plain")
    return engine


def test_recorded_engine(vllm: Any) -> None:
    """From vLLM's recorded answers come version, model, length and cache settings, and nothing is missing."""
    state = read_endpoint(vllm.base_url)
    assert "0.32.0" == state.version
    assert [ServedModel(id="tiny", root="models/tiny-qwen3", max_model_len=4096)] == state.models
    config = state.cache_config or {}
    assert ("True", "128") == (config["enable_prefix_caching"], config["block_size"])
    assert "vllm:prefix_cache_hits" in (state.metric_families or [])
    assert {} == state.reasons


def test_absent_routes(engine: Any) -> None:
    """A server without these routes gives None for each, with the status as reason."""
    state = read_endpoint(engine.base_url)
    assert (None, None, None, None) == (state.version, state.models, state.cache_config, state.metric_families)
    assert {
        "version": "/version: HTTP 404",
        "models": "/v1/models: HTTP 404",
        "cache_config": "/metrics: HTTP 404",
        "metric_families": "/metrics: HTTP 404",
    } == state.reasons


def test_nobody_there() -> None:
    """A dead engine gives reasons, not an exception."""
    state = read_endpoint("http://127.0.0.1:9")
    assert "/version: [Errno 111] Connection refused" == state.reasons["version"]
    assert None is scrape_metrics("http://127.0.0.1:9")


def test_rust_front_end(vllm: Any, replies: Any) -> None:
    """Metrics without cache_config_info say whose they are; the rest is still read."""
    vllm.routes["/metrics"] = replies.whole(b"# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total 1")
    state = read_endpoint(vllm.base_url)
    assert (None, ["vllm:num_preemptions"]) == (state.cache_config, state.metric_families)
    assert "Rust" in state.reasons["cache_config"]


def test_engines_that_differ(vllm: Any, replies: Any) -> None:
    """A label on which two engines differ is left out, with both values in the reason."""
    lines = [
        f'vllm:cache_config_info{{engine="{i}",block_size="16",num_gpu_blocks="{n}"}} 1' for i, n in enumerate((5, 6))
    ]
    vllm.routes["/metrics"] = replies.whole("\n".join(lines).encode())
    state = read_endpoint(vllm.base_url)
    assert {"block_size": "16"} == state.cache_config
    assert "the engines differ: 5, 6" == state.reasons["cache_config.num_gpu_blocks"]


def test_wrong_bodies(engine: Any, replies: Any) -> None:
    """Pages and numbers where objects belong are unknown, with a reason."""
    for path in ("/version", "/v1/models"):
        engine.routes[path] = replies.whole(b"<html>")
    state = read_endpoint(engine.base_url)
    assert "/version is not a JSON object" == state.reasons["version"]
    engine.routes["/v1/models"] = replies.whole(b'{"data": 7}')
    assert "/v1/models holds no list" == read_endpoint(engine.base_url).reasons["models"]


def test_bad_address() -> None:
    """An address that is none is the reader's mistake."""
    with pytest.raises(SpecError):
        read_endpoint("ftp://x")


def test_samples(vllm: Any) -> None:
    """Each line holds time, series, memory and devices, and stopping takes less than a period or two."""
    handle = io.StringIO()
    sampler = Sampler(
        vllm.base_url, handle, pid=os.getpid(), read_gpus=lambda: [{"index": 0, "used_bytes": 7}], period_s=0.1
    )
    with sampler:
        time.sleep(0.55)
    result = sampler.stop()
    lines = [json.loads(line) for line in handle.getvalue().splitlines()]
    assert (None, len(lines)) == (result.failure, result.samples)
    assert 4 <= len(lines) <= 7
    assert {"all": 0.0, "engines": {"0": 0.0}} == lines[0]["series"]["vllm:kv_cache_usage_perc"]
    assert [{"index": 0, "used_bytes": 7}] == lines[0]["gpus"]
    assert 1_000_000 < lines[0]["rss_bytes"]
    assert sorted(line["elapsed_s"] for line in lines) == [line["elapsed_s"] for line in lines]


def test_sampling_a_dead_engine() -> None:
    """While nobody answers, lines go on with the reason; nothing is 0."""
    handle = io.StringIO()
    with Sampler("http://127.0.0.1:9", handle, period_s=0.05):
        time.sleep(0.2)
    line = json.loads(handle.getvalue().splitlines()[0])
    assert (None, None, None) == (line["series"], line["rss_bytes"], line["gpus"])
    assert "/metrics: [Errno 111] Connection refused" == line["reason"]


def test_slow_engine_does_not_pile_up(vllm: Any, replies: Any) -> None:
    """A reading that takes longer than the period leaves turns out and counts them."""
    body = replies.recorded("metrics")
    vllm.routes["/metrics"] = replies.whole(body, content_type="text/plain", pauses_s=[0.25])
    handle = io.StringIO()
    sampler = Sampler(vllm.base_url, handle, period_s=0.1).start()
    time.sleep(0.7)
    result = sampler.stop()
    assert 2 <= result.samples <= 4
    assert result.missed >= result.samples


def test_closed_file_ends_the_sampling(vllm: Any) -> None:
    """A file that cannot be written ends the thread with its reason instead of an exception."""
    handle = io.StringIO()
    handle.close()
    sampler = Sampler(vllm.base_url, handle, period_s=0.05).start()
    time.sleep(0.2)
    assert "ValueError" in (sampler.stop().failure or "")


def test_never_started(vllm: Any) -> None:
    """Stopping what was never started gives an empty result."""
    assert 0 == Sampler(vllm.base_url, io.StringIO()).stop().samples


def test_memory_of_nobody() -> None:
    """A process that is gone has no memory: None, not 0."""
    assert None is read_tree_rss_bytes(2**22 + 1)
