"""When what a log reports happened: clocks of several files, zones and precisions, compared as far as they can be."""

from __future__ import annotations

import re
from datetime import date

from k3lib.logs.failure import Moment, Sign

_SAME_CLOCK_S = 3600.0
_NEAR_IN_TIME_S = 300.0
_HOUR_S = 3600.0
_DAY_S = 86_400.0
_LEAP_YEAR = 2000  # the year that k3lib/logs/stamps.py gives to times that name none
_MOST_ZONE_HOURS = 14
_WAITED = re.compile(r"(?:ran for|timed? ?out after|[Ww]aited(?: for)?) (\d{4,10}) ?m(?:illi)?s")


def same_clock(sign: Sign, other: Sign) -> bool:
    """Whether two signs of one file carry times of the same kind, less than an hour apart."""
    mine, its = sign.moment, other.moment
    if sign.file != other.file or mine.seconds is None or its.seconds is None:
        return False
    same = (mine.year_known, mine.zone_known) == (its.year_known, its.zone_known)
    return same and abs(mine.seconds - its.seconds) < _SAME_CLOCK_S


def began_at(sign: Sign) -> Moment:
    """When what a sign reports began: a time-out is written only when all of its time has passed."""
    waited = _WAITED.search(sign.text)
    if waited is None or sign.moment.seconds is None:
        return sign.moment
    waited_s = float(waited.group(1)) / 1000.0
    moved: dict[str, float | None] = {"seconds": sign.moment.seconds - waited_s}
    if sign.moment.outer_s is not None:
        moved["outer_s"] = sign.moment.outer_s - waited_s
    return sign.moment.model_copy(update=moved)


def near_in_time(moment: Moment, other: Moment | None) -> bool:
    """
    Whether two moments of different clocks can belong together: within five minutes.

    A clock that names no zone may be off by whole hours; one that names no day, as the kernel's seconds since
    boot, cannot be compared and is believed.
    """
    if other is None:
        return True
    if moment.outer_s is not None and other.outer_s is not None:
        return abs(moment.outer_s - other.outer_s) <= _NEAR_IN_TIME_S
    if moment.seconds is None or other.seconds is None:
        return True
    same_year = moment.year_known and other.year_known
    here_s, there_s = (m.seconds if same_year else _without_year(m) for m in (moment, other))
    apart_s = abs((here_s or 0.0) - (there_s or 0.0))
    if not (moment.zone_known and other.zone_known):
        hours = round(apart_s / _HOUR_S)
        apart_s = abs(apart_s - hours * _HOUR_S) if hours <= _MOST_ZONE_HOURS else apart_s
    return apart_s <= _NEAR_IN_TIME_S


def _without_year(moment: Moment) -> float | None:
    if moment.seconds is None or not moment.year_known:
        return moment.seconds
    days, rest_s = divmod(moment.seconds, _DAY_S)
    return date.fromordinal(int(days)).replace(year=_LEAP_YEAR).toordinal() * _DAY_S + rest_s
