"""The word for a series of trials, and the numbers beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from k3lib.errors import CapacityError
from k3lib.spec.vocabulary import Phase
from k3lib.stats.stability import (
    bound_after_clean,
    classify_stability,
    clopper_pearson_interval,
    trials_to_see,
    wilson_interval,
)

W = Phase.WEIGHTS
SHARES = st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("phases", "word", "k", "low", "high"),
    [
        ([W] * 5, "stable", 5, 0.57, 1.0),
        ([None] * 5, "stable", 5, 0.57, 1.0),
        ([W] * 4 + [None], "intermittent", 4, 0.38, 0.96),
        ([W] * 3 + [None] * 2, "intermittent", 3, 0.23, 0.88),
        ([W] * 2, "insufficient", 2, 0.34, 1.0),
        ([W, None], "insufficient", 1, 0.09, 0.91),
        ([W] * 3, "insufficient", 3, 0.44, 1.0),
        ([None] * 9 + [W], "intermittent", 9, 0.60, 0.98),
        ([None] * 20, "stable", 20, 0.84, 1.0),
    ],
)
def test_words(phases: list[Phase | None], word: str, k: int, low: float, high: float) -> None:
    """Five alike are stable, five not alike intermittent, fewer insufficient; Wilson's interval stands beside it."""
    found = classify_stability(phases)
    assert (word, k, len(phases)) == (found.word, found.k, found.n)
    assert (low, high) == (round(found.low or 0, 2), round(found.high or 0, 2))


def test_three_alike_are_exploratory() -> None:
    """3 of 3 is exploratory and leaves a rate of 63 % open; 2 of 2 and 5 of 5 are not exploratory."""
    found = classify_stability([W] * 3)
    assert (True, 0.63) == (found.exploratory, round(found.other_at_most or 0, 2))
    assert [False, False] == [classify_stability([W] * n).exploratory for n in (2, 5)]


def test_endings_are_kept() -> None:
    """The most frequent ending is named, all are counted, and nothing is bounded where they differ."""
    found = classify_stability([None, W, W, Phase.MEMORY, W])
    assert (W, {"success": 1, "weights": 3, "memory": 1}, None) == (found.usual, found.endings, found.other_at_most)


def test_no_trial() -> None:
    """Without a trial nothing is known: no interval, not an interval from 0 to 1."""
    found = classify_stability([])
    assert ("insufficient", 0, None, None) == (found.word, found.n, found.low, found.high)


@pytest.mark.parametrize(
    ("k", "n", "exact", "wilson"),
    [
        (3, 3, (0.29, 1.0), (0.44, 1.0)),
        (5, 5, (0.48, 1.0), (0.57, 1.0)),
        (4, 5, (0.28, 0.99), (0.38, 0.96)),
        (3, 5, (0.15, 0.95), (0.23, 0.88)),
        (8, 8, (0.63, 1.0), (0.68, 1.0)),
        (10, 10, (0.69, 1.0), (0.72, 1.0)),
        (20, 20, (0.83, 1.0), (0.84, 1.0)),
    ],
)
def test_intervals(k: int, n: int, exact: tuple[float, float], wilson: tuple[float, float]) -> None:
    """The two intervals are those of the statisticians' tables."""
    assert exact == tuple(round(end, 2) for end in clopper_pearson_interval(k, n))
    assert wilson == tuple(round(end, 2) for end in wilson_interval(k, n))


@given(SHARES)
def test_intervals_are_scipys(share: tuple[int, int]) -> None:
    """Both agree with scipy's for any share, hold the share, and stay between 0 and 1."""
    k, n = share
    for ours, method in ((wilson_interval(k, n), "wilson"), (clopper_pearson_interval(k, n), "exact")):
        theirs = stats.binomtest(k, n).proportion_ci(0.95, method=method)
        assert (theirs.low, theirs.high) == pytest.approx(ours, abs=1e-9)
        assert 0 <= ours[0] <= k / n <= ours[1] <= 1


@pytest.mark.parametrize(
    ("n", "bound"), [(1, 0.95), (3, 0.63), (5, 0.45), (10, 0.26), (14, 0.19), (29, 0.098), (59, 0.0495)]
)
def test_clean_bound(n: int, bound: float) -> None:
    """What n clean trials leave open is the exact bound, not the rule of three."""
    assert bound == pytest.approx(bound_after_clean(n), abs=0.005)


@pytest.mark.parametrize(
    ("rate", "trials"),
    [
        (0.5, (4, 5, 7)),
        (0.3, (7, 9, 13)),
        (0.2, (11, 14, 21)),
        (0.1, (22, 29, 44)),
        (0.05, (45, 59, 90)),
        (1.0, (1, 1, 1)),
    ],
)
def test_trials_to_see(rate: float, trials: tuple[int, int, int]) -> None:
    """The trials needed to see a failure once are those of the table."""
    assert trials == tuple(trials_to_see(rate, confidence) for confidence in (0.9, 0.95, 0.99))


@pytest.mark.parametrize("nonsense", [(1, 0), (-1, 5), (6, 5)])
def test_nonsense(nonsense: tuple[int, int]) -> None:
    """A share that is none is refused."""
    for interval in (wilson_interval, clopper_pearson_interval):
        with pytest.raises(CapacityError):
            interval(*nonsense)
    with pytest.raises(CapacityError):
        trials_to_see(0.0)
