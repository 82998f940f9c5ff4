"""
`/metrics` with vLLM 0.33.0's names, types, labels and buckets, on the same client library, so the text format is the
same too.

Times are modelled seconds: the engine's own clock, as in its log, not what a client with a scaled clock measures.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

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
    "in terms "
    "of number of queried tokens.",
    "external_prefix_cache_hits": "External prefix cache hits from KV connector cross-instance cache sharing, in "
    "terms of "
    "number of cached tokens.",
    "mm_cache_queries": "Multi-modal cache queries, in terms of number of queried items.",
    "mm_cache_hits": "Multi-modal cache hits, in terms of number of cached items.",
    "num_preemptions": "Cumulative number of preemption from the engine.",
    "prompt_tokens": "Number of prefill tokens processed.",
    "prompt_tokens_cached": "Number of cached prompt tokens (local + external).",
    "generation_tokens": "Number of generation tokens processed.",
}
_SPLIT_COUNTERS = {
    "prompt_tokens_by_source": (
        "Number of prompt tokens by source.",
        "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    "prompt_tokens_cached_by_source": (
        "Prefix-cache hit tokens by the cache tier that supplied them.",
        "source",
        ("device", "host", "p2p", "disk", "external_unspecified"),
    ),
    "request_success": (
        "Count of successfully processed requests.",
        "finished_reason",
        ("stop", "length", "abort", "error", "repetition"),
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
    "request_num_preemptions": ("Histogram of the number of preemptions per request.", (1, 2, 3, 4, 5, 10, 20)),
    "request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        None,
    ),
}


class Metrics:
    """
    The engine's counters, gauges and histograms.

    Args:
        model_name: First served name.
        max_model_len: Tokens; token histograms have buckets up to it.
        engine: Index of the engine's core.
    """

    def __init__(self, model_name: str, max_model_len: int, engine: str = "0") -> None:
        self._labels = {"model_name": model_name, "engine": engine}
        names = ("model_name", "engine")
        tokens = tuple(bucket for bucket in _ONE_TWO_FIVE if bucket <= max_model_len)
        self._gauges = {key: Gauge(f"vllm:{key}", text, names).labels(**self._labels) for key, text in _GAUGES.items()}
        self._counters = {
            key: Counter(f"vllm:{key}", text, names).labels(**self._labels) for key, text in _COUNTERS.items()
        }
        self._split = {
            (key, value): counter.labels(**self._labels, **{label: value})
            for key, (text, label, values) in _SPLIT_COUNTERS.items()
            for counter in [Counter(f"vllm:{key}", text, (*names, label))]
            for value in values
        }
        self._histograms = {
            key: Histogram(f"vllm:{key}", text, names, buckets=buckets or tokens).labels(**self._labels)
            for key, (text, buckets) in _HISTOGRAMS.items()
        }
        self._add_fixed(names)
        self._requests = Counter(
            "http_requests", "Total number of requests by method, status and handler.", _HTTP_LABELS
        )

    def _add_fixed(self, names: tuple[str, str]) -> None:
        """Families that this model never moves but that every 0.33.0 endpoint shows."""
        waiting = Gauge(
            "vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason.", (*names, "reason")
        )
        self._waiting = {reason: waiting.labels(**self._labels, reason=reason) for reason in ("capacity", "deferred")}
        sleep = Gauge(
            "vllm:engine_sleep_state",
            "Engine sleep state; awake = 0 means engine is sleeping.",
            (*names, "sleep_state"),
        )
        for state in ("awake", "weights_offloaded", "discard_all"):
            sleep.labels(**self._labels, sleep_state=state).set(float(state == "awake"))
        text = "Number of admission attempts rejected by a queue limit, by reason."
        rejected = Counter("vllm:admission_rejections", text, ("model_name", "reason"))
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            rejected.labels(model_name=self._labels["model_name"], reason=reason)

    def add(self, key: str, amount: float = 1, part: str | None = None) -> None:
        """Advance a counter; `part` names the source or reason of a split one."""
        counter = self._counters[key] if part is None else self._split[key, part]
        counter.inc(amount)

    def observe(self, key: str, value: float) -> None:
        """One observation of a histogram."""
        self._histograms[key].observe(value)

    def count_http(self, handler: str, method: str, status: int) -> None:
        """One finished HTTP request."""
        self._requests.labels(handler=handler, method=method, status=f"{status // 100}xx").inc()

    def set_load(self, running: int, waiting: int, usage_fraction: float) -> None:
        """The gauges, as of now."""
        self._gauges["num_requests_running"].set(running)
        self._gauges["num_requests_waiting"].set(waiting)
        self._waiting["capacity"].set(waiting)
        self._gauges["kv_cache_usage_perc"].set(usage_fraction)

    def set_cache_config(self, settings: Mapping[str, object]) -> None:
        """`vllm:cache_config_info`: one label per effective setting of the cache."""
        labels = {key: str(value) for key, value in settings.items()} | {"engine": self._labels["engine"]}
        info = Gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", tuple(labels))
        info.labels(**labels).set(1)

    @staticmethod
    def render() -> bytes:
        """The exposition, as `GET /metrics` gives it."""
        return generate_latest(REGISTRY)


_HTTP_LABELS = ("method", "status", "handler")
