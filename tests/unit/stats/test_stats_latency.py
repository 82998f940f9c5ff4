"""Percentiles, intervals and the times of requests."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from k3lib.errors import CapacityError
from k3lib.spec.results import RequestResult
from k3lib.spec.vocabulary import Probe
from k3lib.stats.latency import compute_percentile, compute_tpot_s, summarize_latency
from k3lib.stats.measurement import Measurement

FLOATS = st.floats(-1e6, 1e6)


def _row(**changed: Any) -> RequestResult:
    plain: dict[str, Any] = {
        "probe": Probe.FROZEN,
        "request_id": "0" * 16,
        "sent_at": "2026-11-30T12:00:00+00:00",
        "ok": True,
        "status": 200,
        "error": None,
        "stream": True,
        "ttft_s": 0.5,
        "itl_s": [0.1] * 4,
        "total_s": 0.9,
        "completion_tokens": 5,
    }
    return RequestResult(**(plain | changed))


def test_mean_of_samples() -> None:
    """Ten samples give scipy's t interval."""
    samples = [float(x * x) for x in range(10)]
    found = Measurement.of_samples("k", samples, unit="s", evidence=["f"])
    theirs = stats.t.interval(0.95, 9, loc=statistics.fmean(samples), scale=stats.sem(samples))
    assert theirs == pytest.approx((found.low, found.high), rel=1e-3)
    assert (10, "s", ["f"]) == (found.n, found.unit, found.evidence)


@given(st.integers(2, 400))
def test_t_points_are_scipys(n: int) -> None:
    """For any number of samples the half width is Student's, within 0.3 %."""
    samples = [0.0] * (n - 1) + [1.0]
    found = Measurement.of_samples("k", samples, unit="s")
    half = stats.t.ppf(0.975, n - 1) * statistics.stdev(samples) / math.sqrt(n)
    assert half == pytest.approx((found.high or 0) - (found.value or 0), rel=3e-3)


def test_one_and_no_sample() -> None:
    """One sample has a value and no interval; none has a reason and no value."""
    one = Measurement.of_samples("k", [3.0], unit="s")
    assert (3.0, None, None, 1) == (one.value, one.low, one.high, one.n)
    none = Measurement.of_samples("k", [], unit="s", evidence=["f"])
    assert (None, 0, "there is no sample", ["f"]) == (none.value, none.n, none.reason, none.evidence)


@given(st.lists(FLOATS, min_size=100, max_size=150), st.integers(1, 99))
def test_percentiles_are_numpys(samples: list[float], percent: int) -> None:
    """The percentile is numpy's, and its interval holds it."""
    found = compute_percentile("k", samples, percent, independent=True)
    assert float(np.percentile(samples, percent)) == pytest.approx(found.value, abs=1e-6)
    if found.low is not None and found.high is not None:
        assert found.low <= found.high


def test_interval_covers() -> None:
    """In 400 draws of 30 samples the true median lies in the interval in at least 93 % of them."""
    draw = random.Random(1)
    hits = 0
    for _ in range(400):
        found = compute_percentile("k", [draw.expovariate(1) for _ in range(30)], 50, independent=True)
        hits += (found.low or 0) <= math.log(2) <= (found.high or 0)
    assert hits >= 372


def test_five_samples_have_a_median_without_interval() -> None:
    """Five independent samples cannot bound a median with 95 %; six can, by their ends."""
    assert None is compute_percentile("k", [1.0, 2.0, 3.0, 4.0, 5.0], 50, independent=True).low
    six = compute_percentile("k", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 50, independent=True)
    assert (3.5, 1.0, 6.0) == (six.value, six.low, six.high)


def test_many_samples() -> None:
    """With 5,000 samples the interval of the median is scipy's binomial one."""
    samples = [float(x) for x in range(5000)]
    found = compute_percentile("k", samples, 50, independent=True)
    low, high = stats.binom.ppf(0.025, 5000, 0.5) - 1, stats.binom.ppf(0.975, 5000, 0.5)
    assert (low, high) == pytest.approx((found.low, found.high), abs=1)


def test_tails_need_samples() -> None:
    """A p95 of 19 samples is absent and says how many it needs; of 20 it is there."""
    short = compute_percentile("k", [1.0] * 19, 95, independent=True)
    assert (None, "19 samples; a p95 needs 20") == (short.value, short.reason)
    assert 1.0 == compute_percentile("k", [1.0] * 20, 95, independent=True).value


def test_no_such_percentile() -> None:
    """A percentile outside 1 to 99 is refused."""
    with pytest.raises(CapacityError):
        compute_percentile("k", [1.0], 100, independent=True)


def test_tpot() -> None:
    """Four tokens after the first in 0.4 s are 0.1 s each; without the server's count it is unknown."""
    assert 0.1 == pytest.approx(compute_tpot_s(_row()))
    unknown: list[dict[str, Any]] = [
        {"completion_tokens": None},
        {"completion_tokens": 1},
        {"ttft_s": None},
        {"total_s": None},
    ]
    assert [None] * 4 == [compute_tpot_s(_row(**changed)) for changed in unknown]


def test_summary() -> None:
    """Failed rows are left out; what was not streamed has no TTFT, and says so."""
    rows = [_row(ttft_s=0.4), _row(ttft_s=0.6), _row(ok=False, ttft_s=9.0, itl_s=[9.0])]
    found = {m.key: m for m in summarize_latency(rows, ["trial-1/requests.jsonl"])}
    assert 0.5 == pytest.approx(found["request.ttft_s.p50"].value)
    assert (2, 8, None) == (found["request.ttft_s.p50"].n, found["request.itl_s.p50"].n, found["request.itl_s.p50"].low)
    assert "8 samples; a p99 needs 100" == found["request.itl_s.p99"].reason
    whole = {m.key: m for m in summarize_latency([_row(stream=False, ttft_s=None, itl_s=[])])}
    assert (None, "there is no sample") == (whole["request.ttft_s.p50"].value, whole["request.ttft_s.p50"].reason)
    assert 0.9 == whole["request.e2e_s.p50"].value
