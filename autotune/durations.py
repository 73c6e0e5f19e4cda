"""Durations as people type them."""

from __future__ import annotations

import re

from autotune.errors import UsageError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MOST_SECONDS = 3650 * 86400.0
"""Ten years: more is a slip, and clocks of the system overflow."""
LEAST_BUDGET = 5.0
_UNIT = "s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?"
_PART = re.compile(rf"([0-9.]+(?:e[-+]?[0-9]+)?) *({_UNIT})?(?![a-z]) *", re.IGNORECASE)


def optional_seconds(text: str | None, option: str) -> float | None:
    """Return the same as `seconds`; None for an option that was not given."""
    return None if text is None else seconds(text, option)


def seconds(text: str, option: str) -> float:
    """Return ``90``, ``90s``, ``1h30m`` or ``10 hours``, typed after ``option``, in seconds.
    Raise `UsageError` if it is no duration."""
    parts = [match.groups() for match in _PART.finditer(text)]
    whole = "".join(match.group() for match in _PART.finditer(text)) == text
    unit_missing = len(parts) > 1 and any(unit is None for _number, unit in parts)
    try:
        if not parts or not whole or unit_missing:
            raise ValueError
        value = sum(float(number) * UNITS[(unit or "s")[0].lower()] for number, unit in parts)
    except ValueError:
        raise UsageError(f"{option} {text!r}: write a duration such as 90s, 5m, 1h30m or 10h") from None
    if not value > 0:
        raise UsageError(f"{option} {text!r}: must be a positive duration")
    if value > MOST_SECONDS:
        raise UsageError(f"{option} {text!r}: must be at most {MOST_SECONDS / UNITS['d']:.0f}d")
    return value


def check_budget(budget: float) -> None:
    """Raise `UsageError` for seconds that no run can keep."""
    if not budget >= LEAST_BUDGET:
        raise UsageError(f"--budget {budget:g}s is too short: give at least {LEAST_BUDGET:g}s")
    if budget > MOST_SECONDS:
        raise UsageError(f"--budget {budget:g}s is too long: give at most {MOST_SECONDS / UNITS['d']:.0f}d")
