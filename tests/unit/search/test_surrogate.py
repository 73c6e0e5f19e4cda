"""The model's noise follows from trials that were repeated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.devices import CPU
from autotune.knobs.settings import Settings
from autotune.search.history import Trial
from autotune.search.surrogate import Surrogate, expected_improvement
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed

OWN = Settings(threads=2, batch_size=64)
OTHER = OWN.but(optimizer_impl="fused")


def trial(settings: Settings, log: float) -> Trial:
    """A trial whose log rate differs by ``log`` from what was expected."""
    blocks = (Block(round(1e9 * math.exp(log)), 1e6, 1),) * 3
    return Trial(settings, Completed(measurement=Measurement(blocks)), "safe")


def test_repeats_that_differ_more_than_expected_are_believed_less() -> None:
    def mean_of(scatter: float) -> float:
        repeats = [trial(OWN, log) for log in (0.0, scatter, -scatter, scatter, -scatter, 0.0)]
        model = Surrogate([*repeats, trial(OTHER, 0.3)], lambda _: 0.0, CPU)
        mean, _deviation = model.gains([OTHER], OWN)
        return float(mean[0])

    assert mean_of(0.3) < 0.7 * mean_of(0.01)


@pytest.mark.parametrize(("mean", "deviation"), [(0.1, 0.2), (-0.3, 0.2), (0.1, 0.0), (-0.1, 0.0)])
def test_expected_improvement_is_the_mean_of_what_is_gained(mean: float, deviation: float) -> None:
    drawn = np.random.default_rng(0).normal(mean, deviation, 400_000)
    (found,) = expected_improvement(np.array([mean]), np.array([deviation]))
    assert found == pytest.approx(np.maximum(drawn, 0).mean(), abs=1e-3)
