"""
`/metrics` with vLLM's names, types, labels and buckets, on the same client library, so the text format is the same too.
The Rust front end leaves some out and writes OpenMetrics; the profile says which.

The engine's times are modelled seconds: its own clock, as in its log, not what a client with a scaled clock measures.
Those of HTTP are real.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.openmetrics import exposition as openmetrics

from k3lib.knowledge.profiles import Profile
from k3lib.rehearsal.http_metrics import HttpDone, HttpFamilies

Entry = TypeVar("Entry")
Family = TypeVar("Family")

_ONE_TWO_FIVE = (
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1000,
    2000,
    5000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
)
_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_FINE = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5)
_TTFT = (*_FINE, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_MINUTES = (120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
_SPAN = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, *_MINUTES)

_COUNTERS = {
    "prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "external_prefix_cache_queries": "External prefix cache queries from KV connector cross-instance cache sharing, "
    "in terms of number of queried tokens.",
    "external_prefix_cache_hits": "External prefix cache hits from KV connector cross-instance cache sharing, "
    "in terms of number of cached tokens.",
    "mm_cache_queries": "Multi-modal cache queries, in terms of number of queried items.",
    "mm_cache_hits": "Multi-modal cache hits, in terms of number of cached items.",
    "num_preemptions": "Cumulative number of preemption from the engine.",
    "prompt_tokens": "Number of prefill tokens processed.",
    "prompt_tokens_cached": "Number of cached prompt tokens (local + external).",
    "generation_tokens": "Number of generation tokens processed.",
    "estimated_flops_per_gpu": "Estimated number of floating point operations per GPU (for Model Flops Utilization "
    "calculations).",
    "estimated_read_bytes_per_gpu": "Estimated number of bytes read from memory per GPU (for Model Flops Utilization "
    "calculations).",
    "estimated_write_bytes_per_gpu": "Estimated number of bytes written to memory per GPU (for Model Flops Utilization "
    "calculations).",
}
_SPLIT_COUNTERS = {
    "prompt_tokens_by_source": (
        "Number of prompt tokens by source.",
        "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    "prompt_tokens_cached_by_source": (
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), "
        "disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to "
        "vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        "source",
        ("device", "host", "p2p", "disk", "external_unspecified"),
    ),
    "request_success": (
        "Count of successfully processed requests.",
        "finished_reason",
        ("stop", "length", "abort", "error", "repetition"),
    ),
}
_SPLIT_GAUGES = {
    "num_requests_waiting_by_reason": (
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' "
        "= deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals "
        "vllm:num_requests_waiting.",
        "reason",
        ("capacity", "deferred"),
    ),
    "engine_sleep_state": (
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = "
        "1 means sleep level 1; discard_all = 1 means sleep level 2.",
        "sleep_state",
        ("awake", "weights_offloaded", "discard_all"),
    ),
}
_GAUGES = {
    "num_requests_running": "Number of requests in model execution batches.",
    "num_requests_waiting": "Number of requests waiting to be processed.",
    "kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...] | None]] = {
    "request_prompt_tokens": ("Number of prefill tokens processed.", None),
    "request_generation_tokens": ("Number of generation tokens processed.", None),
    "iteration_tokens_total": ("Histogram of number of tokens per engine_step.", _ITERATION),
    "request_max_num_generation_tokens": ("Histogram of maximum number of requested generation tokens.", None),
    "request_params_n": ("Histogram of the n request parameter.", (1, 2, 5, 10, 20)),
    "request_params_max_tokens": ("Histogram of the max_tokens request parameter.", None),
    "time_to_first_token_seconds": ("Histogram of time to first token in seconds.", _TTFT),
    "inter_token_latency_seconds": ("Histogram of inter-token latency in seconds.", _ITL),
    "request_time_per_output_token_seconds": ("Histogram of time_per_output_token_seconds per request.", _ITL),
    "e2e_request_latency_seconds": ("Histogram of e2e request latency in seconds.", _SPAN),
    "request_queue_time_seconds": ("Histogram of time spent in WAITING phase for request.", _SPAN),
    "request_inference_time_seconds": ("Histogram of time spent in RUNNING phase for request.", _SPAN),
    "request_prefill_time_seconds": ("Histogram of time spent in PREFILL phase for request.", _SPAN),
    "request_decode_time_seconds": ("Histogram of time spent in DECODE phase for request.", _SPAN),
    "request_num_preemptions": ("Histogram of the number of times a request was preempted.", (1, 2, 3, 4, 5, 10, 20)),
    "request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        None,
    ),
}


_ENGINE = ("model_name", "engine")


class Families:
    """
    Every family of one process, and its exposition.

    Args:
        profile: Release and front end: what is left out.
        model_name: First served name.
        max_model_len: Tokens; token histograms have buckets up to it.
    """

    def __init__(self, profile: Profile, model_name: str, max_model_len: int) -> None:
        self.model_name = model_name
        self._profile, self._rust = profile, profile.front_end == "rust"
        self.registry = CollectorRegistry()
        if "created" in profile.families_without:
            disable_created_metrics()  # type: ignore[no-untyped-call]
        if "process" not in profile.families_without:
            for collector in (GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR):
                self.registry.register(collector)
        tokens = tuple(bucket for bucket in _ONE_TWO_FIVE if bucket <= max_model_len)
        self.gauges = self._make(_GAUGES, lambda key, text: Gauge(key, text, _ENGINE, registry=self.registry))
        self.counters = self._make(_COUNTERS, lambda key, text: Counter(key, text, _ENGINE, registry=self.registry))
        self.histograms = self._make(
            _HISTOGRAMS,
            lambda key, one: Histogram(key, one[0], _ENGINE, registry=self.registry, buckets=one[1] or tokens),
        )
        self.split_gauges = self._make(
            _SPLIT_GAUGES, lambda key, one: Gauge(key, one[0], (*_ENGINE, one[1]), registry=self.registry)
        )
        self.split_counters = self._make(
            _SPLIT_COUNTERS, lambda key, one: Counter(key, one[0], (*_ENGINE, one[1]), registry=self.registry)
        )
        self._add_admission()
        self._http = HttpFamilies(self.registry, profile)
        self._cache_config: Gauge | None = None

    def _make(self, table: Mapping[str, Entry], make: Callable[[str, Entry], Family]) -> dict[str, Family]:
        return {
            key: make(f"vllm:{key}", entry) for key, entry in table.items() if key not in self._profile.metrics_without
        }

    def _add_admission(self) -> None:
        """A family that this model never moves but that every endpoint of this release shows."""
        if "admission_rejections" in self._profile.metrics_without:
            return
        text = "Number of admission attempts rejected by a queue limit, by reason."
        rejected = Counter("vllm:admission_rejections", text, ("model_name", "reason"), registry=self.registry)
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            rejected.labels(model_name=self.model_name, reason=reason)

    def count_http(self, exchange: HttpDone) -> None:
        """One HTTP request whose answer has begun."""
        self._http.count(exchange)

    def set_cache_config(self, settings: Mapping[str, object], engine: str = "0") -> None:
        """`vllm:cache_config_info`: one label per effective setting of the cache."""
        if "cache_config_info" in self._profile.metrics_without:
            return
        labels = {key: str(value) for key, value in settings.items()} | {"engine": engine}
        text = "Information of the LLMEngine CacheConfig"
        info = self._cache_config or Gauge("vllm:cache_config_info", text, tuple(labels), registry=self.registry)
        self._cache_config = info
        info.labels(**labels).set(1)

    def render(self) -> tuple[bytes, str]:
        """The exposition, as `GET /metrics` gives it, and its content type."""
        if self._rust:
            body: bytes = openmetrics.generate_latest(self.registry, openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
            return body, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self.registry), "text/plain; version=1.0.0; charset=utf-8"


class Metrics:
    """
    The counters, gauges and histograms of one engine.

    Args:
        families: Of the process.
        engine: Index of the engine's core.
    """

    def __init__(self, families: Families, engine: str = "0") -> None:
        labels = {"model_name": families.model_name, "engine": engine}
        self._gauges = {key: gauge.labels(**labels) for key, gauge in families.gauges.items()}
        self._counters = {key: counter.labels(**labels) for key, counter in families.counters.items()}
        self._histograms = {key: histogram.labels(**labels) for key, histogram in families.histograms.items()}
        self._split = {
            (key, part): counter.labels(**labels, **{_SPLIT_COUNTERS[key][1]: part})
            for key, counter in families.split_counters.items()
            for part in _SPLIT_COUNTERS[key][2]
        }
        self._split_gauges = {
            (key, part): gauge.labels(**labels, **{_SPLIT_GAUGES[key][1]: part})
            for key, gauge in families.split_gauges.items()
            for part in _SPLIT_GAUGES[key][2]
        }
        if ("engine_sleep_state", "awake") in self._split_gauges:
            self._split_gauges["engine_sleep_state", "awake"].set(1)

    def add(self, key: str, amount: float = 1, part: str | None = None) -> None:
        """Advance a counter; `part` names the source or reason of a split one. Nothing where the release has it not."""
        counter = self._counters.get(key) if part is None else self._split.get((key, part))
        if counter is not None:
            counter.inc(amount)

    def observe(self, key: str, value: float) -> None:
        """One observation of a histogram; nothing where the release has it not."""
        if key in self._histograms:
            self._histograms[key].observe(value)

    def set_load(self, running: int, waiting: int, usage_fraction: float) -> None:
        """The gauges, as of now."""
        self._gauges["num_requests_running"].set(running)
        self._gauges["num_requests_waiting"].set(waiting)
        self._gauges["kv_cache_usage_perc"].set(usage_fraction)
        if ("num_requests_waiting_by_reason", "capacity") in self._split_gauges:
            self._split_gauges["num_requests_waiting_by_reason", "capacity"].set(waiting)
