"""Settings worth looking at: all of a small space, else what lies near the best and a sample of the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space

SMALL = 1500
"""Spaces with no more combinations than this are enumerated."""
PAIRS = 80
RANDOM = 30


def combinations(space: Space) -> int:
    """Upper bound on the number of settings in ``space``."""
    lists = (values for name, values in space.values.items() if name != "batch_size")
    return math.prod(len(values) for values in lists) * len(space.global_batches)


def candidates(space: Space, around: Sequence[Settings], rng: np.random.Generator) -> list[Settings]:
    """Distinct feasible settings near ``around``: one move away, two moves away, and random walks.

    Deterministic for a given state of ``rng``.
    """
    found = dict.fromkeys(around)
    nearby = [[s for _, s in space.moves(centre, far=True)] for centre in around]
    for settings in (s for near in nearby for s in near):
        found.setdefault(settings)
    for near in nearby:
        for settings in _walks(space, near, PAIRS // len(nearby), 1, rng):
            found.setdefault(settings)
    for settings in _walks(space, around, RANDOM, 4, rng):
        found.setdefault(settings)
    return list(found)


def _walks(
    space: Space, starts: Sequence[Settings], count: int, steps: int, rng: np.random.Generator
) -> Iterator[Settings]:
    for _ in range(count if starts else 0):
        settings = starts[int(rng.integers(len(starts)))]
        for _ in range(int(rng.integers(1, steps + 1))):
            settings = space.random_move(settings, lambda many: int(rng.integers(many))) or settings
        yield settings
