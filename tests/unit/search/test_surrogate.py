"""The model's uncertainty: scales that grow where it was far off, noise that grows where repeats differ."""

from __future__ import annotations

import math

from autotune.knobs.settings import Settings
from autotune.search.history import Trial
from autotune.search.surrogate import Surrogate
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed

OWN = Settings(threads=2, batch_size=64)
TRIED = (OWN, OWN.but(num_workers=2), OWN.but(threads=1), OWN.but(optimizer_impl="fused"), OWN.but(num_workers=1))
UNSEEN = OWN.but(num_workers=2, threads=1)


def surrogate(logs: list[float], noise: float = 0.03) -> Surrogate:
    """Of trials whose log rates differ by ``logs`` from what was expected."""
    history = [
        Trial(s, Completed(measurement=Measurement((Block(round(1e9 * math.exp(log)), 1e6, 1),) * 3)), "safe")
        for s, log in zip(TRIED, logs, strict=True)
    ]
    return Surrogate(history, lambda _: 0.0, noise, "cpu")


def test_a_model_that_was_far_off_is_less_sure_of_everything():
    calm, wrong = surrogate([0.0, 0.1, -0.1, 0.05, 0.0]), surrogate([0.0, 2.5, -2.0, 1.5, 2.0])
    assert wrong.surprised
    assert wrong.gains([UNSEEN], OWN).deviation[0] > 2 * calm.gains([UNSEEN], OWN).deviation[0]


def test_repeats_that_differ_more_than_expected_are_believed_less():
    same = (OWN,) * 6

    def mean_of(noise_seen: float) -> float:
        logs = [0.0, noise_seen, -noise_seen, noise_seen, -noise_seen, 0.0]
        history = [
            Trial(s, Completed(measurement=Measurement((Block(round(1e9 * math.exp(log)), 1e6, 1),) * 3)), "safe")
            for s, log in zip(same, logs, strict=True)
        ]
        lucky = Completed(measurement=Measurement((Block(round(1.3e9), 1e6, 1),) * 3))
        model = Surrogate([*history, Trial(TRIED[3], lucky, "safe")], lambda _: 0.0, 0.03, "cpu")
        return float(model.gains([TRIED[3]], OWN).mean[0])

    assert mean_of(0.3) < 0.7 * mean_of(0.01)
