"""What the HTTP server itself counts: the families of prometheus-fastapi-instrumentator, which vLLM uses."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary

from k3lib.knowledge.profiles import Profile

_HTTP_BUCKETS = (0.1, 0.5, 1)
_HTTP_FINE_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5),
    *(10, 30, 60),
)
_SIZE_HELP = "Only value of header is respected. Otherwise ignored. No percentile calculated. "


@dataclass(frozen=True)
class HttpDone:
    """
    One answered HTTP request.

    Args:
        handler: Path of the route, `none` for an unknown one.
        method, status: As sent.
        request_bytes, response_bytes: What the headers say; 0 where they say nothing.
        seconds: Until the answer began.
    """

    handler: str
    method: str
    status: int
    request_bytes: int
    response_bytes: int
    seconds: float


class HttpFamilies:
    """What the HTTP server itself counts."""

    def __init__(self, registry: CollectorRegistry, profile: Profile) -> None:
        text = "Total number of requests by method, status and handler."
        self._requests = Counter("http_requests", text, ("method", "status", "handler"), registry=registry)
        self._sizes = [
            Summary(
                f"http_{kind}_size_bytes",
                f"Content length of {what} by handler. {_SIZE_HELP}",
                ("handler",),
                registry=registry,
            )
            for kind, what in (("request", "incoming requests"), ("response", "outgoing responses"))
            if f"http_{kind}_size_bytes" not in profile.families_without
        ]
        self._fine = Histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
            buckets=_HTTP_FINE_BUCKETS,
            registry=registry,
        )
        self._duration = Histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
            ("method", "handler"),
            buckets=_HTTP_BUCKETS,
            registry=registry,
        )

    def count(self, done: HttpDone) -> None:
        """One answered request."""
        self._requests.labels(handler=done.handler, method=done.method, status=f"{done.status // 100}xx").inc()
        for summary, size in zip(self._sizes, (done.request_bytes, done.response_bytes), strict=False):
            summary.labels(handler=done.handler).observe(size)
        self._fine.observe(done.seconds)
        self._duration.labels(method=done.method, handler=done.handler).observe(done.seconds)
