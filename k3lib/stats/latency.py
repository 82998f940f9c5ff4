"""
The times of requests: TTFT, ITL, TPOT and E2E latency, as percentiles that say on how many samples they stand.

A chunk of a stream may hold several tokens (vLLM 0.32.0 sends 24 tokens in 21 chunks), so a gap between
chunks is not always a token's time: ITL tells how evenly text arrives, TPOT how fast tokens are made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from k3lib.errors import CapacityError
from k3lib.spec.results import RequestResult
from k3lib.stats.measurement import Measurement

_METHOD = "percentile, linear between samples"


def summarize_latency(rows: Sequence[RequestResult], evidence: Sequence[str] = ()) -> list[Measurement]:
    """
    The latencies of whole answers.

    Args:
        rows: Requests of one kind and one arm; those that failed are left out.
        evidence: Files that hold them.

    Returns:
        TTFT, TPOT and E2E latency per request, ITL over all gaps; absent ones say why.

    >>> [(m.key, m.value, m.reason) for m in summarize_latency([])][0]
    ('request.ttft_s.p50', None, 'there is no sample')
    """
    whole = [row for row in rows if row.ok]
    per_request = {
        "request.ttft_s": [row.ttft_s for row in whole if row.ttft_s is not None],
        "request.tpot_s": [tpot for tpot in map(compute_tpot_s, whole) if tpot is not None],
        "request.e2e_s": [row.total_s for row in whole if row.total_s is not None],
    }
    found = [
        compute_percentile(f"{key}.p{percent}", samples, percent, independent=True, evidence=evidence)
        for key, samples in per_request.items()
        for percent in (50, 95)
    ]
    gaps = [gap for row in whole for gap in row.itl_s]
    return found + [
        compute_percentile(f"request.itl_s.p{percent}", gaps, percent, independent=False, evidence=evidence)
        for percent in (50, 99)
    ]


def compute_tpot_s(row: RequestResult) -> float | None:
    """
    Time per output token after the first, seconds.

    Args:
        row: One request.

    Returns:
        None without a stream, without the server's own token count, or with fewer than two tokens.
    """
    if row.ttft_s is None or row.total_s is None or row.completion_tokens is None or row.completion_tokens < 2:
        return None
    return (row.total_s - row.ttft_s) / (row.completion_tokens - 1)


def compute_percentile(
    key: str,
    samples: Sequence[float],
    percent: int,
    *,
    unit: str = "s",
    independent: bool,
    evidence: Sequence[str] = (),
) -> Measurement:
    """
    A percentile with its distribution-free 95 % interval.

    Args:
        key: What it is.
        samples: Any order.
        percent: 1 to 99.
        unit: Unit of the samples.
        independent: Whether they are; gaps of one stream are not, so they get no interval.
        evidence: Files that hold them.

    Returns:
        The measurement. A tail that no sample reaches (p95 of fewer than 20, p99 of fewer than 100) is absent:
        it would be the largest sample under another name.

    Raises:
        CapacityError: percent is not from 1 to 99.

    >>> compute_percentile("x", [1.0, 2.0, 4.0], 50, independent=True).value
    2.0
    """
    if not 1 <= percent <= 99:
        raise CapacityError(
            "no such percentile", expected="1 to 99", evidence=str(percent), next="ask for one in between"
        )
    n, needed = len(samples), math.ceil(100 / min(percent, 100 - percent)) if percent != 50 else 1
    if n < needed:
        reason = f"{n} samples; a p{percent} needs {needed}" if n else "there is no sample"
        return Measurement.absent(key, unit=unit, reason=reason, evidence=evidence)
    ordered = sorted(samples)
    place = (n - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, n - 1)
    ranks = _interval_ranks(n, percent / 100) if independent else None
    if not independent:
        method = f"{_METHOD}; no interval, because gaps of one stream hang together"
    else:
        method = f"{_METHOD}; interval by order statistics" if ranks else f"{_METHOD}; too few samples for an interval"
    return Measurement(
        key=key,
        value=ordered[below] + (place - below) * (ordered[above] - ordered[below]),
        unit=unit,
        n=n,
        low=ordered[ranks[0]] if ranks else None,
        high=ordered[ranks[1]] if ranks else None,
        method=method,
        evidence=list(evidence),
    )


def _interval_ranks(n: int, share: float) -> tuple[int, int] | None:
    """
    Positions of the two samples between which the percentile lies with 95 %, or None if n is too small.

    The number of samples below the true percentile is binomial, whatever the distribution.
    """
    tails, low, high = 0.0, None, None
    for count in range(n + 1):
        ways = math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
        tails += math.exp(ways + count * math.log(share) + (n - count) * math.log(1 - share))
        if tails <= 0.025:
            low = count
        if high is None and tails >= 0.975:
            high = count
    return (low, high) if low is not None and high is not None and high < n else None
