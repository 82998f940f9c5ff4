"""Base units inside, people's units only when shown; every function is pure text or arithmetic."""

from __future__ import annotations

GIB = 1024**3


def format_seconds(value_s: float | None) -> str:
    """
    A duration as a person reads it.

    Args:
        value_s: Seconds, or None.

    Returns:
        Text with its unit; an em dash for None.

    >>> format_seconds(0.0123), format_seconds(4.26), format_seconds(754), format_seconds(None)
    ('12 ms', '4.3 s', '12 min 34 s', '—')
    """
    if value_s is None:
        return "—"
    if value_s < 1:
        return f"{value_s * 1000:.0f} ms"
    if value_s < 120:
        return f"{value_s:.1f} s"
    minutes, seconds = divmod(round(value_s), 60)
    if minutes < 120:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_bytes(value_bytes: int | None) -> str:
    """
    Bytes in binary units, which is what tools report.

    Args:
        value_bytes: Bytes, or None.

    Returns:
        Text with its unit; an em dash for None.

    >>> format_bytes(512), format_bytes(3 * 1024**3), format_bytes(None)
    ('512 B', '3.00 GiB', '—')
    """
    if value_bytes is None:
        return "—"
    value = float(value_bytes)
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB" if abs(value) < 1024 else f"{value / 1024:.2f} TiB"
