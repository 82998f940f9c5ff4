"""Reading /metrics: recorded text of vLLM 0.32.0, former names, torn lines, restarts."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from k3lib.logs.metrics import (
    CACHE_CONFIG,
    WATCHED,
    Metrics,
    Series,
    compute_increase,
    find_resets,
    parse_metrics,
    summarize_watched,
)

RECORDED = (Path(__file__).parents[1] / "measure" / "recorded" / "metrics.body").read_bytes()
HITS = Series("vllm:prefix_cache_hits")
USAGE = Series("vllm:kv_cache_usage_perc", over_engines="max", counts=False)


def _hits(*values: float) -> Metrics:
    return parse_metrics("\n".join(f'vllm:prefix_cache_hits_total{{engine="{i}"}} {v}' for i, v in enumerate(values)))


def test_every_watched_series_is_in_vllm() -> None:
    """Each name that is sampled stands in what vLLM 0.32.0 really printed."""
    metrics = parse_metrics(RECORDED)
    assert [] == [series.name for series in WATCHED if not metrics.by_engine(series)]
    assert 0 == metrics.unreadable


def test_cache_config() -> None:
    """The labels of cache_config_info are read as they stand."""
    [labels] = parse_metrics(RECORDED).cache_configs()
    assert ("True", "128", "0", "none") == (
        labels["enable_prefix_caching"],
        labels["block_size"],
        labels["prefix_cache_retention_interval"],
        labels["mamba_cache_mode"],
    )


def test_absent_is_none() -> None:
    """A series that is not there is None, and one that is there with 0 is 0."""
    assert None is parse_metrics(b"").over_engines(HITS)
    assert 0.0 == parse_metrics(RECORDED).over_engines(HITS)
    assert {None} == set(summarize_watched(parse_metrics(b"")).values())


def test_engines_add_up_or_the_fullest_binds() -> None:
    """Counters of two engines are added; of two KV-cache fractions the larger one counts."""
    assert 30.0 == _hits(10, 20).over_engines(HITS)
    text = 'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.75'
    assert 0.75 == parse_metrics(text).over_engines(USAGE)


def test_former_names() -> None:
    """The names of older releases are read under the present ones."""
    text = 'vllm:gpu_cache_usage_perc{engine="0"} 0.5\nvllm:time_per_output_token_seconds_count{engine="0"} 7'
    assert {"vllm:kv_cache_usage_perc", "vllm:inter_token_latency_seconds_count"} == {
        sample.name for sample in parse_metrics(text).samples
    }


def test_parts() -> None:
    """A split series keeps its parts apart and can be taken together."""
    success = Series("vllm:request_success", split="finished_reason")
    text = 'vllm:request_success_total{engine="0",finished_reason="stop"} 3\n'
    text += 'vllm:request_success_total{engine="0",finished_reason="length"} 4'
    metrics = parse_metrics(text)
    assert (["stop", "length"], 3.0, 7.0) == (
        metrics.parts(success),
        metrics.over_engines(success, "stop"),
        metrics.over_engines(success),
    )
    assert {"all": 4.0, "engines": {"0": 4.0}} == summarize_watched(metrics)[
        'vllm:request_success{finished_reason="length"}'
    ]


def test_increase() -> None:
    """A counter's growth is over all engines."""
    assert 25.0 == compute_increase(_hits(10, 0), _hits(20, 15), HITS)


def test_restart_is_seen() -> None:
    """One engine's counter that went back voids the growth, also when the sum still grew."""
    before, after = _hits(100, 10), _hits(5, 500)
    assert ["vllm:prefix_cache_hits 0"] == find_resets(before, after)
    assert None is compute_increase(before, after, HITS)
    assert [] == find_resets(before, before)


def test_engine_that_disappears_is_a_restart() -> None:
    """A counter that was above 0 and is not there any more went back."""
    assert ["vllm:prefix_cache_hits 1"] == find_resets(_hits(1, 2), _hits(1))


def test_torn_lines_are_counted() -> None:
    """A line cut in the middle, or without a finite number, is counted and nothing else is lost."""
    text = 'vllm:prefix_cache_hits_total{engine="0\nvllm:prefix_cache_hits_total{engine="0"} NaN\n'
    metrics = parse_metrics(text + 'vllm:prefix_cache_hits_total{engine="0"} 4')
    assert (2, 4.0) == (metrics.unreadable, metrics.over_engines(HITS))


@given(st.binary())
def test_any_bytes(content: bytes) -> None:
    """No bytes make the parser raise."""
    parse_metrics(content)


@given(st.text(alphabet='{}",=\\ \t\r#1.eE+-naNif_éx'), st.sampled_from(["vllm:prefix_cache_hits_total", CACHE_CONFIG]))
def test_any_tail(tail: str, name: str) -> None:
    """No tail of a wanted line makes the parser raise, and a read value is finite."""
    for sample in parse_metrics(name + tail).samples:
        assert abs(sample.value) < float("inf")


@given(st.integers(0, len(RECORDED)))
def test_any_cut(end: int) -> None:
    """A text cut anywhere gives no value that the whole text does not have."""
    whole = {(sample.name, str(sample.labels)): sample.value for sample in parse_metrics(RECORDED).samples}
    for sample in parse_metrics(RECORDED[:end]).samples[:-1]:
        assert whole[sample.name, str(sample.labels)] == sample.value
