"""Durations as people type them."""

from __future__ import annotations

from autotune.core.errors import UsageError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str, option: str) -> float:
    """``90``, ``90s``, ``5m``, ``10h`` in seconds; ``option`` is where the user typed it.

    Raises:
        UsageError: not a duration.
    """
    number, unit = (text[:-1], text[-1]) if text and text[-1] in UNITS else (text, "s")
    try:
        value = float(number) * UNITS[unit]
    except ValueError:
        raise UsageError(f"{option} {text!r}: write a duration such as 90s, 5m or 10h") from None
    if not 0 < value < float("inf"):
        raise UsageError(f"{option} {text!r}: must be a positive duration")
    return value
