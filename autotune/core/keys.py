"""Machine keys as text: how far two types of machines are apart, without reading their profiles."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

PATTERN = re.compile(
    r"(?P<design>.*?)-(?:(?P<sockets>\d{1,4})s-)?(?P<cores>\d{1,6})c(?:(?P<threads>\d{1,6})t)?"
    r"-(?P<gib>\d{1,7}(?:\.\d)?)g(?:-(?P<gpus>.+))?"
)
FAR = 100.0
"""Distance of another processor design or other GPUs; one of a key that cannot be read is `FAR` too."""


@dataclass(frozen=True)
class _Parts:
    design: str
    threads: int
    gib: float
    gpus: str


def nearest(key: str, others: Iterable[str]) -> list[str]:
    """``others``, those first whose machines are most like that of ``key``."""
    own = _parts(key)
    return sorted(others, key=lambda other: (_distance(own, _parts(other)), other))


def _parts(key: str) -> _Parts | None:
    match = PATTERN.fullmatch(key)
    if match is None:
        return None
    threads = int(match["threads"] or match["cores"])
    return _Parts(match["design"], max(1, threads), max(0.1, float(match["gib"])), match["gpus"] or "")


def _distance(one: _Parts | None, other: _Parts | None) -> float:
    """In doublings of threads and memory; other designs and GPUs are `FAR`."""
    if one is None or other is None:
        return 4 * FAR
    sizes = abs(math.log2(one.threads / other.threads)) + 0.5 * abs(math.log2(one.gib / other.gib))
    devices = 2 * FAR if bool(one.gpus) != bool(other.gpus) else FAR if one.gpus != other.gpus else 0.0
    return sizes + devices + (FAR if one.design != other.design else 0.0)
