"""
How often fresh starts end alike, and how little a few of them prove.

The unit is one fresh start of the engine: a second request to the same server is no independent trial,
because caches, compiled code and the allocator's state carry over.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from k3lib.errors import CapacityError
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Phase

StabilityWord = Literal["stable", "intermittent", "insufficient"]

ENOUGH_TRIALS = 5
"""Trials from which on the word stable may be used; a default, printed with every verdict."""

EXPLORATORY_TRIALS = 3

_Z_95 = statistics.NormalDist().inv_cdf(0.975)


class Stability(Fact):
    """
    Whether trials of one arm end alike.

    Args:
        word: `stable`: at least 5 trials, all alike. `intermittent`: at least 5, not all alike. Else `insufficient`.
        k: Trials that ended in the most frequent way.
        n: Trials in all.
        low, high: Wilson's 95 % interval of the share k/n; None without a trial.
        usual: The most frequent ending: the phase of the failure, or None for a success.
        endings: Every ending with its count, `success` for None.
        exploratory: At least 3 trials, all alike, but fewer than 5.
        other_at_most: With all alike, the exact one-sided 95 % bound on the rate of any other ending; else None.
    """

    word: StabilityWord
    k: int
    n: int
    low: float | None = None
    high: float | None = None
    usual: Phase | None = None
    endings: dict[str, int]
    exploratory: bool = False
    other_at_most: float | None = None


def classify_stability(phases: Sequence[Phase | None]) -> Stability:
    """
    The word for a series of trials, with the numbers that stand beside it.

    Args:
        phases: For each trial the phase in which it failed, or None for a success. Void trials are left out.

    Returns:
        The classification.

    Source:
        R-11; 5 of 5 still allows one failure in three or so, hence the interval.

    >>> stability = classify_stability([Phase.WEIGHTS] * 4 + [None])
    >>> stability.word, stability.k, stability.n, round(stability.low, 2), round(stability.high, 2)
    ('intermittent', 4, 5, 0.38, 0.96)
    """
    n = len(phases)
    if n == 0:
        return Stability(word="insufficient", k=0, n=0, endings={})
    counts = Counter(phases)
    usual = max(counts, key=lambda phase: (counts[phase], phase is not None and -phase.order))
    k = counts[usual]
    low, high = wilson_interval(k, n)
    enough = n >= ENOUGH_TRIALS
    return Stability(
        word=("stable" if k == n else "intermittent") if enough else "insufficient",
        k=k,
        n=n,
        low=low,
        high=high,
        usual=usual,
        endings={phase.value if phase else "success": count for phase, count in counts.items()},
        exploratory=k == n and EXPLORATORY_TRIALS <= n < ENOUGH_TRIALS,
        other_at_most=bound_after_clean(n) if k == n else None,
    )


def wilson_interval(k: int, n: int) -> tuple[float, float]:
    """
    Wilson's 95 % interval of a share.

    Args:
        k: Successes, 0 to n.
        n: Trials, 1 or more.

    Returns:
        Low and high end, between 0 and 1.

    Raises:
        CapacityError: Not a share.

    >>> [round(end, 2) for end in wilson_interval(5, 5)]
    [0.57, 1.0]
    """
    _check_share(k, n)
    share, square = k / n, _Z_95**2
    centre = (share + square / (2 * n)) / (1 + square / n)
    half = _Z_95 * math.sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    # At the ends the formula gives exactly 0 and 1, up to rounding.
    return (0.0 if k == 0 else centre - half), (1.0 if k == n else centre + half)


def clopper_pearson_interval(k: int, n: int) -> tuple[float, float]:
    """
    The exact 95 % interval of a share; wider than Wilson's, never too narrow.

    Args:
        k: Successes, 0 to n.
        n: Trials, 1 or more.

    Returns:
        Low and high end, between 0 and 1.

    Raises:
        CapacityError: Not a share.

    >>> [round(end, 2) for end in clopper_pearson_interval(4, 5)]
    [0.28, 0.99]
    """
    _check_share(k, n)
    from scipy.special import betaincinv  # half a second to import, and only this interval needs it

    low = float(betaincinv(k, n - k + 1, 0.025)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return low, high


def bound_after_clean(n: int) -> float:
    """
    The highest failure rate that n trials without a failure leave open, one-sided 95 %.

    Args:
        n: Trials without a failure, 1 or more.

    Returns:
        The exact bound, 1 - 0.05^(1/n); the rule of three, 3/n, overstates it for few trials.

    Raises:
        CapacityError: n is below 1.

    >>> [round(bound_after_clean(n), 2) for n in (1, 3, 5, 14)]
    [0.95, 0.63, 0.45, 0.19]
    """
    _check_share(0, n)
    return float(1 - 0.05 ** (1 / n))


def trials_to_see(rate: float, confidence: float = 0.95) -> int:
    """
    Trials needed to see a failure at least once.

    Args:
        rate: True failure rate, above 0 and at most 1.
        confidence: Wanted probability of seeing one, above 0 and below 1.

    Returns:
        Whole trials.

    Raises:
        CapacityError: Not such a rate or probability.

    >>> trials_to_see(0.2), trials_to_see(0.05)
    (14, 59)
    """
    if not (0 < rate <= 1 and 0 < confidence < 1):
        raise CapacityError(
            "no number of trials answers this",
            expected="0 < rate <= 1 and 0 < confidence < 1",
            evidence=f"rate {rate}, confidence {confidence}",
            next="give a rate that can be seen",
        )
    return 1 if rate == 1 else math.ceil(math.log(1 - confidence) / math.log(1 - rate))


def _check_share(k: int, n: int) -> None:
    if n < 1 or not 0 <= k <= n:
        raise CapacityError(
            f"{k} of {n} is no share",
            expected="n of 1 or more, and k from 0 to n",
            evidence=f"k = {k}, n = {n}",
            next="count the trials again",
        )
