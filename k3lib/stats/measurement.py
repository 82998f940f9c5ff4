"""A number that carries its unit, its count and its doubt; an absent one carries its reason."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pydantic import Field

from k3lib.spec.model import Fact

# Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom; a table, because scipy's import takes longer
# than all of a session's arithmetic.
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_Z_95 = statistics.NormalDist().inv_cdf(0.975)


class Measurement(Fact):
    """
    One computed number.

    Args:
        key: What it is, `start.ready_s` for instance.
        value: The number; None with a reason.
        unit: Its unit; empty for a plain count or share.
        n: How many samples it stands on.
        low, high: Ends of the 95 % interval; None where there is none.
        method: How value and interval were computed.
        reason: Why the value is None.
        evidence: Files that hold the samples.
    """

    key: str
    value: float | None
    unit: str
    n: int
    low: float | None = None
    high: float | None = None
    method: str = ""
    reason: str | None = None
    evidence: list[str] = Field(default_factory=list)

    @classmethod
    def of_samples(cls, key: str, samples: Sequence[float], *, unit: str, evidence: Sequence[str] = ()) -> Measurement:
        """
        The mean of independent samples with its t interval.

        Args:
            key: What it is.
            samples: One number per independent trial.
            unit: Their unit.
            evidence: Files that hold them.

        Returns:
            The measurement; without an interval for one sample, without a value for none.

        >>> ready = Measurement.of_samples("start.ready_s", [1.0, 2.0, 3.0], unit="s")
        >>> ready.value, round(ready.low, 2), round(ready.high, 2), ready.n
        (2.0, -0.48, 4.48, 3)
        """
        count = len(samples)
        if count == 0:
            return cls.absent(key, unit=unit, reason="there is no sample", evidence=evidence)
        mean = statistics.fmean(samples)
        plain = cls(key=key, value=mean, unit=unit, n=count, method="mean; one sample has no interval")
        if count > 1:
            half = _t_95(count - 1) * statistics.stdev(samples) / math.sqrt(count)
            plain = plain.model_copy(update={"low": mean - half, "high": mean + half, "method": "mean, Student's t"})
        return plain.model_copy(update={"evidence": list(evidence)})

    @classmethod
    def absent(cls, key: str, *, unit: str, reason: str, evidence: Sequence[str] = ()) -> Measurement:
        """A number that is not known, and why."""
        return cls(key=key, value=None, unit=unit, n=0, reason=reason, evidence=list(evidence))


def _t_95(degrees: int) -> float:
    if degrees <= len(_T_95):
        return _T_95[degrees - 1]
    return _Z_95 + (_Z_95**3 + _Z_95) / (4 * degrees)  # the normal's expansion, within 0.2 % from here on
