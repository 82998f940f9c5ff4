"""
Times as logs write them, made comparable; what a time does not say stays said.

Seen: `11-30 16:55:51` (vLLM: no year, no zone), `2026-02-12T08:00:01.120Z` (docker, Kubernetes),
`2026-08-27 10:41:58,035` (Python logging), `Aug 19 18:44:30` (syslog, journald), `1130 17:13:46.798`
(glog), `Sun Aug  2 03:10:45 2026` (dmesg -T), `26002.109918` (dmesg: seconds since boot).
"""

from __future__ import annotations

import calendar
import re
from datetime import date
from typing import NamedTuple

_DAY_S = 86_400
_LEAP_YEAR = 2000  # stands in for an unknown year, so that 02-29 is a day
_YEAR_S = 366 * _DAY_S
_END_OF_FEBRUARY_S = (date(_LEAP_YEAR, 2, 29).toordinal()) * float(_DAY_S)
_MONTHS = {name: i for i, name in enumerate(calendar.month_abbr)}

_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?"
_DATED = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})[T ]" + _CLOCK + r"\s?(Z|[+-]\d{2}:?\d{2})?$")
_MONTH_DAY = re.compile(r"(\d{1,2})-(\d{1,2})[T ]" + _CLOCK + "$")
_GLOG = re.compile(r"(\d{1,2})(\d{2}) " + _CLOCK + "$")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) " + _CLOCK + "$")
_DMESG = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) " + _CLOCK + r" (\d{4})$")


class Stamp(NamedTuple):
    """
    One time in a log.

    Args:
        text: As written.
        seconds: Comparable with other stamps of the same clock; None if it cannot be placed.
        year_known: Whether the log said the year.
        zone_known: Whether the log said the zone. An unknown zone is counted as UTC.
    """

    text: str
    seconds: float | None
    year_known: bool
    zone_known: bool


def parse_stamp(text: str) -> Stamp:
    """
    A time as written, with what it leaves out.

    Args:
        text: The time alone, without brackets.

    Returns:
        A stamp; `seconds` is None for a day that does not exist or a clock that counts from boot.

    >>> parse_stamp("11-30 16:55:51").year_known
    False
    >>> parse_stamp("2026-02-12T08:00:01.5Z").seconds - parse_stamp("2026-02-12T09:00:00+01:00").seconds
    1.5
    """
    if found := _MONTH_DAY.match(text):
        return _place(text, None, found.group(1), found.group(2), found.groups()[2:6])
    if found := _DATED.match(text):
        return _place(text, found.group(1), found.group(2), found.group(3), found.groups()[3:7], found.group(8))
    if found := _SYSLOG.match(text):
        return _place(text, None, str(_MONTHS.get(found.group(1), 0)), found.group(2), found.groups()[2:6])
    if found := _GLOG.match(text):
        return _place(text, None, found.group(1), found.group(2), found.groups()[2:6])
    if found := _DMESG.match(text):
        month = str(_MONTHS.get(found.group(1), 0))
        return _place(text, found.group(7), month, found.group(2), found.groups()[2:6])
    return Stamp(text, None, False, False)


def _place(
    text: str, year: str | None, month: str, day: str, clock: tuple[str | None, ...], zone: str | None = None
) -> Stamp:
    hour, minute, second, fraction = clock
    try:
        days = date(int(year or _LEAP_YEAR), int(month), int(day)).toordinal()
    except ValueError:
        return Stamp(text, None, year is not None, zone is not None)
    seconds = float(days * _DAY_S + int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0))
    if fraction:
        seconds += int(fraction) / 10 ** len(fraction)
    return Stamp(text, seconds - _offset_s(zone), year is not None, zone is not None)


def _offset_s(zone: str | None) -> int:
    if not zone or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    offset_s = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -offset_s if zone[0] == "-" else offset_s


def measure_span(start: Stamp, end: Stamp) -> tuple[float | None, str | None]:
    """
    Seconds between two stamps of one clock, or why they cannot be told.

    Args:
        start: The earlier stamp.
        end: The later stamp.

    Returns:
        Seconds and None, or None and the reason. A step back of up to 2 s, which lines of several
        processes take, counts as 0; New Year is passed over when the year is unknown.

    >>> measure_span(parse_stamp("12-31 23:59:50"), parse_stamp("01-01 00:00:20"))
    (30.0, None)
    >>> measure_span(parse_stamp("02-28 12:00:00"), parse_stamp("03-01 12:00:00"))
    (None, 'without a year nobody knows whether this February had 29 days')
    """
    if start.seconds is None or end.seconds is None:
        return None, "a time that names no day"
    if start.year_known != end.year_known:
        return None, "one of the two times has a year and the other none"
    span_s = end.seconds - start.seconds
    if not start.year_known:
        if span_s < -_YEAR_S / 2:
            span_s += _YEAR_S
        if start.seconds < _END_OF_FEBRUARY_S and end.seconds >= _END_OF_FEBRUARY_S + _DAY_S:
            return None, "without a year nobody knows whether this February had 29 days"
    if span_s < -2:
        return None, f"the clock went back by {-span_s:.0f} s"
    return max(span_s, 0.0), None
