"""Intent against what runs: agreement, mismatch, and all the ways of not knowing."""

from __future__ import annotations

from typing import Any

import pytest

from k3lib.judge.effective import EffectiveField, compare_effective
from k3lib.logs.values import EngineValues
from k3lib.spec.results import EndpointState, ServedModel


def _endpoint(**changed: Any) -> EndpointState:
    plain: dict[str, Any] = {
        "base_url": "http://127.0.0.1:8000",
        "read_at": "2026-11-30T12:00:00+00:00",
        "version": "0.32.0",
        "models": [ServedModel(id="tiny", root="/models/tiny", max_model_len=4096)],
        "cache_config": {
            "enable_prefix_caching": "False",
            "block_size": "256",
            "prefix_cache_retention_interval": "0",
            "mamba_cache_mode": "none",
            "gpu_memory_utilization": "0.92",
            "num_gpu_blocks_override": "None",
        },
    }
    return EndpointState(**(plain | changed))


def _row(name: str, intended: dict[str, Any], endpoint: EndpointState | None, log: Any = None) -> EffectiveField:
    [row] = [row for row in compare_effective(intended, endpoint, log or {}) if row.name == name]
    return row


@pytest.mark.parametrize(
    ("name", "intended", "agrees"),
    [
        ("prefix_caching", False, True),
        ("prefix_caching", True, False),
        ("max_model_len", 4096, True),
        ("max_model_len", 8192, False),
        ("max_model_len", "auto", None),
        ("retention_interval_tokens", 0, True),
        ("retention_interval_tokens", "dense", False),
        ("block_size_tokens", 256, True),
        ("block_size_tokens", 1536, False),
        ("gpu_memory_utilization", 0.92, True),
        ("served_model", "tiny", True),
        ("served_model", "other", False),
        ("model", "/models/tiny/", True),
        ("model", "moonshotai/Kimi-K3", False),
        ("release", "0.32.0+cpu", True),
        ("release", "0.33.0", False),
        ("release", "not a release", None),
    ],
)
def test_endpoint(name: str, intended: Any, agrees: bool | None) -> None:
    """What the endpoint tells is compared; releases by their public part; what cannot be compared is unknown."""
    row = _row(name, {name: intended}, _endpoint())
    assert (intended, agrees) == (row.intended, row.agrees)
    assert (agrees is None) == (row.reason is not None)


def test_log_is_second() -> None:
    """Without cache_config_info the log tells whether caching is on."""
    rust = _endpoint(cache_config=None, reasons={"cache_config": "the Rust front end does not print it"})
    row = _row("prefix_caching", {"prefix_caching": False}, rust, EngineValues(prefix_caching=True))
    assert (True, "log", False) == (row.effective, row.source, row.agrees)


def test_nobody_tells() -> None:
    """Where neither tells, agreement is unknown and the endpoint's own reason stands in the row."""
    rust = _endpoint(cache_config=None, reasons={"cache_config": "the Rust front end does not print it"})
    row = _row("prefix_caching", {"prefix_caching": False}, rust)
    assert (None, None) == (row.effective, row.agrees)
    assert "the Rust front end does not print it; its log does not tell" == row.reason


def test_dead_engine() -> None:
    """An endpoint that was never read makes everything unknown and nothing wrong."""
    rows = compare_effective({"prefix_caching": False, "release": "0.33.0", "tensor_parallel": 8}, None, {})
    assert {None} == {row.agrees for row in rows}
    assert all(row.reason for row in rows)


def test_log_only_settings() -> None:
    """Parallelism and element type are the log's; `torch.` before a type is no difference."""
    log = EngineValues(tensor_parallel=8, dtype="torch.bfloat16")
    assert True is _row("tensor_parallel", {"tensor_parallel": 8}, _endpoint(), log).agrees
    assert False is _row("tensor_parallel", {"tensor_parallel": 16}, _endpoint(), log).agrees
    assert True is _row("dtype", {"dtype": "bfloat16"}, _endpoint(), log).agrees
    assert None is _row("dtype", {"dtype": "auto"}, _endpoint(), log).agrees


def test_other_names_of_one_thing() -> None:
    """A short name of a type agrees with its long one; a kernel of the same quantisation method is not called wrong."""
    fp8 = _endpoint(cache_config={"cache_dtype": "fp8_e4m3"})
    assert True is _row("kv_cache_dtype", {"kv_cache_dtype": "fp8"}, fp8).agrees
    assert False is _row("kv_cache_dtype", {"kv_cache_dtype": "fp8_e5m2"}, fp8).agrees
    log = EngineValues(quantization="awq_marlin")
    assert None is _row("quantization", {"quantization": "awq"}, None, log).agrees
    assert False is _row("quantization", {"quantization": "gptq"}, None, log).agrees


def test_witnesses_that_differ() -> None:
    """If the log says otherwise than /metrics, /metrics counts and the row says so."""
    row = _row("prefix_caching", {"prefix_caching": False}, _endpoint(), EngineValues(prefix_caching=True))
    assert (True, "log says True") == (row.agrees, row.reason)


def test_left_to_the_engine() -> None:
    """What was not asked for is shown and agrees with nothing."""
    row = _row("mamba_cache_mode", {}, _endpoint())
    assert ("none", None, "left to the engine") == (row.effective, row.agrees, row.reason)


def test_settings_that_nobody_reports() -> None:
    """Every intended setting has a row; one that no source tells is unknown."""
    row = _row("environment.NCCL_CUMEM_ENABLE", {"environment.NCCL_CUMEM_ENABLE": "1"}, _endpoint())
    assert (None, "neither /metrics nor the log tells it") == (row.agrees, row.reason)


def test_unreadable_label() -> None:
    """A label that holds something new is unknown, not wrong."""
    odd = _endpoint(cache_config={"enable_prefix_caching": "maybe", "block_size": "None"})
    assert None is _row("prefix_caching", {"prefix_caching": False}, odd).agrees
    assert None is _row("block_size_tokens", {"block_size_tokens": 256}, odd).agrees


def test_engines_that_differ() -> None:
    """A label on which two engines differ is unknown, with both values."""
    reasons = {"cache_config.block_size": "the engines differ: 256, 512"}
    endpoint = _endpoint(cache_config={}, reasons=reasons)
    row = _row("block_size_tokens", {"block_size_tokens": 256}, endpoint)
    assert (None, True) == (row.agrees, (row.reason or "").startswith("the engines differ: 256, 512"))


def test_several_models() -> None:
    """With several served models the one that requests use is compared."""
    models = [ServedModel(id="a", max_model_len=1), ServedModel(id="b", max_model_len=2)]
    intended = {"served_model": "b", "max_model_len": 2}
    assert True is _row("max_model_len", intended, _endpoint(models=models)).agrees
