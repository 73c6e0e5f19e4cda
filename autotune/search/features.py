"""`Settings` as coordinates: one group per decision, with what is known of it before any trial.

Ordinal knobs lie on log2 scales, because doubling is the natural step of threads, workers and batches. A group's
``spread`` is the prior standard deviation of its effect on the log rate (0.1 is about ten per cent).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from autotune.core.settings import (
    ALLOCATORS,
    BACKENDS,
    BINDINGS,
    COMPILE_MODES,
    OPTIMIZER_IMPLS,
    PRECISIONS,
    Settings,
)

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


BASE: tuple[Group, ...] = (
    Group("backend", lambda s: (_exchange(s),), 0.20),
    Group("num_workers", lambda s: (log2(1 + s.num_workers),), 0.30, 1.5),
    Group("all workers", lambda s: (log2(1 + s.processes * s.num_workers),), 0.20, 1.5),
    Group("binding", lambda s: (BINDINGS.index(s.binding),), 0.05),
    Group("prefetch_factor", lambda s: (log2(s.prefetch_factor or 2),), 0.03, 2.0),
    Group("pin_memory", lambda s: (s.pin_memory,), 0.06),
    Group("global batch", lambda s: (log2(s.global_batch),), 0.25, 2.0),
    Group("interop_threads", lambda s: (log2(s.interop_threads),), 0.03, 2.0),
    Group("channels_last", lambda s: (s.channels_last,), 0.20),
    Group("optimizer_impl", lambda s: (OPTIMIZER_IMPLS.index(s.optimizer_impl),), 0.10),
    Group("allocator", lambda s: (ALLOCATORS.index(s.allocator),), 0.06),
    Group("cudnn_benchmark", lambda s: (s.cudnn_benchmark,), 0.08),
    Group("compile", lambda s: (COMPILE_MODES.index(s.compile),), 0.15),
    Group("precision", lambda s: (PRECISIONS.index(s.precision),), 0.30),
)
GROUPS: dict[str, tuple[Group, ...]] = {
    "cpu": (Group("processes x threads", lambda s: (log2(s.processes), log2(s.threads)), 0.30, 1.0), *BASE),
    "cuda": (
        Group("processes", lambda s: (log2(s.processes),), 0.30, 1.5),
        Group("threads", lambda s: (log2(s.threads),), 0.05, 2.0),
        Group("data_parallel", lambda s: (s.data_parallel,), 0.40),
        *BASE,
    ),
}
"""By device: on the CPU processes and threads share the cores, beside a GPU threads hardly matter."""


def _exchange(settings: Settings) -> int:
    """0 for a device's usual backend and for none: what several processes cost is their own group's to say."""
    return 0 if settings.backend in (None, "gloo", "nccl") else 1 + BACKENDS.index(settings.backend)


def coordinates(groups: Sequence[Group], settings: Sequence[Settings]) -> tuple[Array, ...]:
    """One array of shape ``(len(settings), dimensions)`` for each group."""
    return tuple(np.array([group.where(s) for s in settings], dtype=float) for group in groups)


def likeness(group: Group, first: Array, second: Array) -> Array:
    """Correlation of the group's effect between two lists of coordinates: shape ``(len(first), len(second))``."""
    difference = first[:, None, :] - second[None, :, :]
    squared = (difference * difference).sum(axis=2)
    if group.length is None:
        return np.asarray(squared == 0, dtype=float)
    return np.asarray(np.exp(-0.5 * squared / group.length**2))
