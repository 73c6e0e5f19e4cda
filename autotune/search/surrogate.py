"""A small Gaussian process on the log rate: what the trials so far predict for every other setting.

log rate = constant + prior expectation + sum of group effects + weak pairwise interactions + drift + noise.
Settings are coordinates: one group for each decision. Ordinal knobs lie on log2 scales, because doubling is the natural
step of threads, workers and batches. Effects of groups and their interactions share one kernel per group (additive
Gaussian processes, Duvenaud et al. 2011; pairs by the Newton-Girard identity). Drift is a Markov process over trial
numbers (exponential kernel), so that repeats of a setting separate drift from effect. At most a few dozen trials:
everything is a dense solve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from autotune.devices import Device
from autotune.knobs.backend import BACKENDS
from autotune.knobs.settings import KNOBS, Settings
from autotune.search.history import Trial, trial_noise

Array = NDArray[np.float64]
CONSTANT_SPREAD = 0.5
INTERACTION = 1.0
"""Strength of a pair of groups' joint effect, relative to the product of their own."""
DRIFT_SPREAD = 0.02
DRIFT_LENGTH = 6.0
"""Trials over which the machine's speed stays alike."""
FACTORS = (1 / 3, 3.0)
"""By how much a group's spread may turn out smaller or larger than expected."""
PENALTY = 0.5
"""Log likelihood that a departure from what is expected must gain."""
MAX_ERROR = 0.10
FAILURE_LOSS = 0.5
"""A failed trial counts as this much log rate below the best one, loosely: its neighbours become less likely picks."""
FAILURE_ERROR = 0.5


@dataclass(frozen=True)
class KnobGroup:
    """Knobs that act together.

    Attributes:
        name: for people.
        place: coordinate of settings within the group, or several.
        spread: prior standard deviation of the group's effect on log rate.
        length: distance over which the effect is alike; None for categories, alike only if equal.
    """

    name: str
    place: Callable[[Settings], float | tuple[float, ...]]
    spread: float
    length: float | None = None


def groups_on(device: Device) -> tuple[KnobGroup, ...]:
    """Return what acts together: on the CPU processes and threads share the cores, on a GPU threads hardly matter."""
    shape = [KnobGroup("processes x threads", lambda s: (log2(s.processes), log2(s.threads)), 0.30, 1.0)]
    if not device.on_host:
        shape = [
            KnobGroup("processes", lambda s: log2(s.processes), 0.30, 1.5),
            KnobGroup("threads", lambda s: log2(s.threads), 0.05, 2.0),
        ]
    return (
        *shape,
        KnobGroup("backend", _gradient_sync, 0.20),
        KnobGroup("all workers", lambda s: log2(1 + s.processes * s.num_workers), 0.20, 1.5),
        KnobGroup("global batch", lambda s: log2(s.global_batch), 0.25, 2.0),
        *(
            KnobGroup(knob.name, knob.coordinate, knob.spread, knob.length)
            for knob in KNOBS
            if knob.spread is not None and not knob.idle(device)
        ),
    )


def _gradient_sync(settings: Settings) -> int:
    """Return 0 for a device's usual backend and for none: the group of processes includes their cost."""
    return 0 if settings.backend in (None, "gloo", "nccl") else 1 + list(BACKENDS).index(settings.backend)


def correlations(groups: Sequence[KnobGroup], first: Sequence[Settings], second: Sequence[Settings]) -> Array:
    """Return the correlation of each group's effect between settings: ``(groups, len(first), len(second))``."""
    return np.stack([_correlation(group, first, second) for group in groups])


def _correlation(group: KnobGroup, first: Sequence[Settings], second: Sequence[Settings]) -> Array:
    ours, theirs = (np.array([group.place(s) for s in each], float).reshape(len(each), -1) for each in (first, second))
    difference = ours[:, None, :] - theirs[None, :, :]
    squared = (difference * difference).sum(axis=2)
    if group.length is None:
        return np.asarray(squared == 0, dtype=float)
    return np.asarray(np.exp(-0.5 * squared / group.length**2))


def expected_improvement(mean: Array, deviation: Array) -> Array:
    """Compute E[max(0, gain)], in log rate: what trying each candidate is worth (Mockus 1978)."""
    deviation = np.maximum(deviation, 1e-12)
    z = mean / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])
    return np.asarray(mean * below + deviation * density)


class Surrogate:
    """Posterior over log rates, given trials of which at least one was measured.

    Args:
        history: all finished trials, oldest first.
        expectation: prior expected log rate of settings, up to a constant.
        device: ``cpu`` or ``cuda``: which effects to expect.
    """

    def __init__(self, history: Sequence[Trial], expectation: Callable[[Settings], float], device: Device) -> None:
        self._groups = groups_on(device)
        self._expectation = expectation
        self._settings = [trial.settings for trial in history]
        values, self._error_variance = _targets(history, trial_noise(history))
        expected = np.array([expectation(settings) for settings in self._settings])
        self._offset = float(np.mean(values - expected))
        self._residual = values - self._offset - expected
        self._correlations = correlations(self._groups, self._settings, self._settings)
        apart = np.abs(np.subtract.outer(np.arange(len(history)), np.arange(len(history))))
        self._drift = DRIFT_SPREAD**2 * np.exp(-apart / DRIFT_LENGTH)
        self._spreads = self._fit()
        self._factor = self._factorise(self._spreads)
        self._weights = np.linalg.solve(self._factor.T, np.linalg.solve(self._factor, self._residual))

    def log_rates(self, settings: Sequence[Settings]) -> Array:
        """Return the posterior mean of the log rate, with drift taken out."""
        prior = np.array([self._expectation(s) for s in settings])
        return np.asarray(prior + self._offset + self._cross(settings) @ self._weights)

    def gains(self, candidates: Sequence[Settings], reference: Settings) -> tuple[Array, Array]:
        """Return the gain in log rate of each candidate over ``reference``, and its deviation; what both share
        cancels."""
        everything = [reference, *candidates]
        cross = self._cross(everything)
        half = np.linalg.solve(self._factor, cross.T)
        prior = np.array([self._expectation(s) for s in everything])
        mean = prior + cross @ self._weights
        against = correlations(self._groups, everything, [reference])[:, :, 0]
        with_reference = _kernel(against, self._spreads) - half.T @ half[:, 0]
        own = _kernel(np.ones((len(self._groups), 1)), self._spreads)[0] - (half * half).sum(axis=0)
        variance = own + own[0] - 2 * with_reference
        return mean[1:] - mean[0], np.sqrt(np.maximum(variance[1:], 0.0))

    def _cross(self, settings: Sequence[Settings]) -> Array:
        return _kernel(correlations(self._groups, settings, self._settings), self._spreads)

    def _factorise(self, spreads: Array) -> Array:
        covariance = _kernel(self._correlations, spreads) + self._drift + np.diag(self._error_variance)
        return np.asarray(np.linalg.cholesky(covariance))

    def _log_likelihood(self, spreads: Array) -> float:
        factor = self._factorise(spreads)
        scaled = np.linalg.solve(factor, self._residual)
        return float(-0.5 * scaled @ scaled - np.log(np.diag(factor)).sum())

    def _fit(self) -> Array:
        """Find the spreads that explain the trials best, each near what was expected (one sweep of coordinate
        ascent)."""
        spreads = np.array([group.spread for group in self._groups])
        best = self._log_likelihood(spreads)
        for k in [k for k, block in enumerate(self._correlations) if (block < 1).any()]:
            for factor in FACTORS:
                other = spreads.copy()
                other[k] = self._groups[k].spread * factor
                score = self._log_likelihood(other) - PENALTY
                if score > best:
                    spreads, best = other, score
        return spreads


def _kernel(correlations: Array, spreads: Array) -> Array:
    """Compute the covariance from correlations of shape ``(groups, ...)``: constant, main effects, pairs."""
    shape = (-1,) + (1,) * (correlations.ndim - 1)
    scale = spreads.reshape(shape)
    mains = (scale**2 * correlations).sum(axis=0)
    pairs = 0.5 * (mains**2 - ((scale**2 * correlations) ** 2).sum(axis=0))
    return np.asarray(CONSTANT_SPREAD**2 + mains + INTERACTION**2 * pairs)


def _targets(history: Sequence[Trial], noise: float) -> tuple[Array, Array]:
    """Return log rates and their error variances; a failure is a loose, low value."""
    best = max(trial.value for trial in history if trial.value is not None)
    values, variances = [], []
    for trial in history:
        if trial.value is not None:
            values.append(trial.value)
            variances.append(min(trial.error, MAX_ERROR) ** 2 + noise**2)
        else:
            values.append(best - FAILURE_LOSS)
            variances.append(FAILURE_ERROR**2)
    return np.array(values), np.array(variances)
