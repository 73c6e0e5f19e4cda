"""Finds what somebody may have meant by a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Find names in ``known`` that are spelt like ``name``, the nearest first, at most ``most``."""
    return difflib.get_close_matches(name, sorted(set(known)), n=most)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` to append to a message; empty where nothing is near."""
    return "".join(f"; did you mean {found}?" for found in near(name, known))
