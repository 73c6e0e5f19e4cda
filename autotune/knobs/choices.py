"""The values that are offered for one knob, and the reasons for those that are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Choices:
    """Values offered for one knob and, for each value left out, the reason."""

    values: tuple[Any, ...]
    left_out: tuple[tuple[Any, str], ...] = ()


def by_reason(reasons: Mapping[Any, str | None]) -> Choices:
    """Offer the values that have no reason against them, and leave out the others."""
    left_out = tuple((value, reason) for value, reason in reasons.items() if reason is not None)
    return Choices(tuple(value for value, reason in reasons.items() if reason is None), left_out)


def unless(reason: str | None, neutral: Any, *others: Any) -> Choices:
    """Offer ``neutral`` and ``others``; ``neutral`` alone if there is a ``reason`` against the others."""
    return by_reason({neutral: None, **dict.fromkeys(others, reason)})


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, ... up to and including ``most``."""
    return [1 << k for k in range(most.bit_length()) if 1 << k <= most]
