"""`Settings` as coordinates: one group per decision, with what is known of it before any trial.

Ordinal knobs lie on log2 scales, because doubling is the natural step of threads, workers and batches. A group's
``spread`` is the prior standard deviation of its effect on the log rate (0.1 is about ten per cent).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log2

import numpy as np
from numpy.typing import NDArray

from autotune.knobs.backend import BACKENDS
from autotune.knobs.knob import Knob
from autotune.knobs.settings import Settings
from autotune.knobs.table import KNOBS

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Knobs that act together.

    Attributes:
        name: for people.
        where: coordinates of settings within the group.
        spread: prior standard deviation of the group's effect on log rate.
        length: distance over which the effect is alike; None for categories, alike only where equal.
    """

    name: str
    where: Callable[[Settings], tuple[float, ...]]
    spread: float
    length: float | None = None


def _coordinate(knob: Knob, settings: Settings) -> tuple[float, ...]:
    return (knob.coordinate(settings),)


def _own(device: str) -> tuple[Group, ...]:
    """Knobs that act by themselves."""
    return tuple(
        Group(knob.name, partial(_coordinate, knob), knob.effect.spread, knob.effect.length)
        for knob in KNOBS
        if knob.effect is not None and device in knob.devices
    )


TOGETHER: tuple[Group, ...] = (
    Group("backend", lambda s: (_exchange(s),), 0.20),
    Group("all workers", lambda s: (log2(1 + s.processes * s.num_workers),), 0.20, 1.5),
    Group("global batch", lambda s: (log2(s.global_batch),), 0.25, 2.0),
)
"""Knobs that act together on every device."""
GROUPS: dict[str, tuple[Group, ...]] = {
    "cpu": (
        Group("processes x threads", lambda s: (log2(s.processes), log2(s.threads)), 0.30, 1.0),
        *TOGETHER,
        *_own("cpu"),
    ),
    "cuda": (
        Group("processes", lambda s: (log2(s.processes),), 0.30, 1.5),
        Group("threads", lambda s: (log2(s.threads),), 0.05, 2.0),
        *TOGETHER,
        *_own("cuda"),
    ),
}
"""By device: on the CPU processes and threads share the cores, beside a GPU threads hardly matter."""


def _exchange(settings: Settings) -> int:
    """0 for a device's usual backend and for none: what several processes cost is their own group's to say."""
    return 0 if settings.backend in (None, "gloo", "nccl") else 1 + list(BACKENDS).index(settings.backend)


def coordinates(groups: Sequence[Group], settings: Sequence[Settings]) -> tuple[Array, ...]:
    """One array of shape ``(len(settings), dimensions)`` for each group."""
    return tuple(np.array([group.where(s) for s in settings], dtype=float) for group in groups)


def correlation(group: Group, first: Array, second: Array) -> Array:
    """Correlation of the group's effect between two lists of coordinates: shape ``(len(first), len(second))``."""
    difference = first[:, None, :] - second[None, :, :]
    squared = (difference * difference).sum(axis=2)
    if group.length is None:
        return np.asarray(squared == 0, dtype=float)
    return np.asarray(np.exp(-0.5 * squared / group.length**2))
