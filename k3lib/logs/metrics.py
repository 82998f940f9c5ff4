"""
The text of /metrics: the wanted series under one name, whatever the release called them.

Comes from vLLM's Python front end (0.32.0 and 0.33.0 read) and its Rust front end, which lacks
`vllm:cache_config_info`. A full text is 40 to 50 KiB, so only the wanted lines are parsed. Sample lines:

    vllm:num_requests_running{engine="0",model_name="tiny"} 0.0
    vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.0
    vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 1152.0
    vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 2.0
    vllm:cache_config_info{block_size="128",enable_prefix_caching="False",engine="0",…} 1.0

An empty text means that nothing is known. A series that is not there is unknown, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

CACHE_CONFIG = "vllm:cache_config_info"


@dataclass(frozen=True)
class Series:
    """
    A series worth keeping.

    Args:
        name: Present name, without `_total`.
        over_engines: How the engines of a data-parallel server add up; a fraction's largest is the one that binds.
        split: The label that tells its parts, or None.
        counts: Whether it only grows while the engine lives.
    """

    name: str
    over_engines: Literal["sum", "max"] = "sum"
    split: str | None = None
    counts: bool = True


WATCHED = (
    Series("vllm:num_requests_running", counts=False),
    Series("vllm:num_requests_waiting", counts=False),
    Series("vllm:num_requests_waiting_by_reason", split="reason", counts=False),
    Series("vllm:kv_cache_usage_perc", over_engines="max", counts=False),
    Series("vllm:num_preemptions"),
    Series("vllm:prefix_cache_queries"),
    Series("vllm:prefix_cache_hits"),
    Series("vllm:external_prefix_cache_queries"),
    Series("vllm:external_prefix_cache_hits"),
    Series("vllm:prompt_tokens"),
    Series("vllm:prompt_tokens_cached"),
    Series("vllm:prompt_tokens_by_source", split="source"),
    Series("vllm:generation_tokens"),
    Series("vllm:request_success", split="finished_reason"),
    Series("vllm:admission_rejections", split="reason"),
    Series("vllm:time_to_first_token_seconds_sum"),
    Series("vllm:time_to_first_token_seconds_count"),
    Series("vllm:inter_token_latency_seconds_sum"),
    Series("vllm:inter_token_latency_seconds_count"),
    Series("vllm:request_queue_time_seconds_sum"),
    Series("vllm:request_queue_time_seconds_count"),
    Series("vllm:e2e_request_latency_seconds_sum"),
    Series("vllm:e2e_request_latency_seconds_count"),
)
"""What is sampled while a trial runs; cache counters count tokens (vLLM 0.33.0 v1/metrics/loggers.py:528-1120)."""

FORMER_NAMES = {
    "vllm:gpu_cache_usage_perc": "vllm:kv_cache_usage_perc",
    "vllm:gpu_prefix_cache_queries": "vllm:prefix_cache_queries",
    "vllm:gpu_prefix_cache_hits": "vllm:prefix_cache_hits",
    "vllm:time_per_output_token_seconds_sum": "vllm:inter_token_latency_seconds_sum",
    "vllm:time_per_output_token_seconds_count": "vllm:inter_token_latency_seconds_count",
}
"""Names that older releases used (vllm#18354, vllm#29330); all renamed before 0.27."""

WANTED = frozenset(series.name for series in WATCHED) | {CACHE_CONFIG}


@dataclass(frozen=True)
class MetricSample:
    """
    One line.

    Args:
        name: Present name, without `_total`.
        labels: Labels as they stand.
        value: A finite number.
    """

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Metrics:
    """
    What one text of /metrics said.

    Args:
        samples: The wanted lines, in order.
        families: Present names of all families that the text declares.
        unreadable: Wanted lines that could not be read, or held no finite number.
    """

    samples: tuple[MetricSample, ...]
    families: tuple[str, ...]
    unreadable: int

    def by_engine(self, series: Series, part: str | None = None) -> dict[str, float]:
        """
        The values of a series, an engine each.

        Args:
            series: Which one.
            part: Value of its split label; None takes all parts together.

        Returns:
            Engine label to value; a line without the label stands under "". Empty if the series is absent.
        """
        found: dict[str, float] = {}
        for sample in self.samples:
            if sample.name == series.name and (part is None or sample.labels.get(series.split or "") == part):
                engine = sample.labels.get("engine", "")
                found[engine] = found.get(engine, 0.0) + sample.value
        return found

    def over_engines(self, series: Series, part: str | None = None) -> float | None:
        """One number for the whole server, or None if the series is absent."""
        values = self.by_engine(series, part).values()
        if not values:
            return None
        return max(values) if series.over_engines == "max" else sum(values)

    def parts(self, series: Series) -> list[str]:
        """The values of a series' split label, in order of appearance; empty if it has none."""
        if series.split is None:
            return []
        found = (sample.labels.get(series.split, "") for sample in self.samples if sample.name == series.name)
        return list(dict.fromkeys(found))

    def cache_configs(self) -> list[dict[str, str]]:
        """The labels of `vllm:cache_config_info`, an engine each; empty under the Rust front end."""
        return [dict(sample.labels) for sample in self.samples if sample.name == CACHE_CONFIG]


def parse_metrics(content: bytes | str, wanted: Collection[str] = WANTED) -> Metrics:
    """
    Reads the wanted lines of a metrics text.

    Args:
        content: The body of /metrics; any bytes are taken.
        wanted: Present names, without `_total`.

    Returns:
        What could be read.

    >>> text = 'vllm:gpu_prefix_cache_hits_total{engine="0"} 1152.0'
    >>> parse_metrics(text).samples
    (MetricSample(name='vllm:prefix_cache_hits', labels={'engine': '0'}, value=1152.0),)
    """
    text = content if isinstance(content, str) else content.decode("utf-8", errors="replace")
    samples: list[MetricSample] = []
    families: dict[str, None] = {}
    unreadable = 0
    for line in text.split("\n"):
        if line.startswith("# TYPE "):
            families[_present_name(line[7:].split(" ", 1)[0])] = None
            continue
        name = _present_name(line[: _name_end(line)])
        if name not in wanted:
            continue
        sample = _read_sample(name, line)
        if sample is None:
            unreadable += 1
        else:
            samples.append(sample)
    return Metrics(tuple(samples), tuple(families), unreadable)


def find_resets(before: Metrics, after: Metrics, watched: Iterable[Series] = WATCHED) -> list[str]:
    """
    Counters that went back, which means that an engine was started anew in between.

    Args:
        before, after: Two texts of one server, in order of time.
        watched: The series to compare; gauges are passed over.

    Returns:
        Names, `name engine`; empty if none went back. A segment that holds a reset is void.
    """
    found = []
    for series in watched:
        if series.counts:
            earlier, later = before.by_engine(series), after.by_engine(series)
            found += [f"{series.name} {engine}".strip() for engine in earlier if later.get(engine, 0) < earlier[engine]]
    return found


def compute_increase(before: Metrics, after: Metrics, series: Series) -> float | None:
    """
    How much a counter grew.

    Args:
        before, after: Two texts of one server, in order of time.
        series: A counter.

    Returns:
        The growth over all engines; None if the counter is absent on either side or went back.
    """
    first, last = before.over_engines(series), after.over_engines(series)
    if first is None or last is None or find_resets(before, after, [series]):
        return None
    return last - first


def summarize_watched(metrics: Metrics) -> dict[str, dict[str, object] | None]:
    """
    The watched series as one line of a sample file keeps them.

    Args:
        metrics: One text.

    Returns:
        Name, with `{label="part"}` for a part, to `{"all": number, "engines": {…}}`; None for an absent series.
    """
    summary: dict[str, dict[str, object] | None] = {}
    for series in WATCHED:
        parts: list[str | None] = [*metrics.parts(series)] or [None]
        for part in parts:
            key = series.name if part is None else f'{series.name}{{{series.split}="{part}"}}'
            engines = metrics.by_engine(series, part)
            summary[key] = {"all": metrics.over_engines(series, part), "engines": engines} if engines else None
    return summary


def _name_end(line: str) -> int:
    ends = [position for position in (line.find("{"), line.find(" ")) if position >= 0]
    return min(ends) if ends else len(line)


def _present_name(name: str) -> str:
    name = name.removesuffix("_total")
    return FORMER_NAMES.get(name, name)


def _read_sample(name: str, line: str) -> MetricSample | None:
    from prometheus_client.parser import text_string_to_metric_families  # 90 ms that reading a record can spare

    try:
        found = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
    except (ValueError, IndexError, KeyError, TypeError):  # what the parser raises on a torn line
        return None
    if len(found) != 1 or not math.isfinite(found[0].value):
        return None
    return MetricSample(name, dict(found[0].labels), float(found[0].value))
