"""The model's noise follows from trials that were repeated."""

from __future__ import annotations

import math

from autotune.knobs.settings import Settings
from autotune.search.history import Trial
from autotune.search.surrogate import Surrogate
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
        model = Surrogate([*repeats, trial(OTHER, 0.3)], lambda _: 0.0, "cpu")
        mean, _deviation = model.gains([OTHER], OWN)
        return float(mean[0])

    assert mean_of(0.3) < 0.7 * mean_of(0.01)
