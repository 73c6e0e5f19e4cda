"""Finds what somebody may have meant by a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` to append to a message; empty if no name in ``known`` is spelt like ``name``."""
    return "".join(f"; did you mean {found}?" for found in difflib.get_close_matches(name, sorted(set(known)), n=1))
