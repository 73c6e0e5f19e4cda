"""The pure parts of the honesty experiments."""

import numpy as np
import pytest

from autotune.stats.proof import BASELINE
from benchmarks.honesty.noise import Noise, fitted, simulated
from benchmarks.honesty.proofs import NEEDED, Turn, prove


def test_a_clear_gain_is_claimed_and_covered() -> None:
    generations = simulated(Noise(luck=0.01, block=0.01), {"a": 1.0, "b": 1.5}, 2, np.random.default_rng(0))
    answer = prove(generations, {BASELINE: "a", "safe": "b"})
    assert answer.claims == 1
    assert answer.covers(1.5)
    assert not answer.covers(1.0)
    assert answer.generations < NEEDED
    assert prove(generations, {BASELINE: "b", "safe": "a"}).claims == 0


def test_a_fit_finds_the_noise_that_made_a_recording() -> None:
    noise = Noise(luck=0.06, block=0.03, wander=0.2)
    rng = np.random.default_rng(0)
    generations = [g for _ in range(60) for g in simulated(noise, dict.fromkeys("abcd", 1.0), 4, rng)]
    found = fitted(generations)
    assert found.luck == pytest.approx(0.06, rel=0.1)
    assert found.wander == pytest.approx(0.2, rel=0.2)
    calm = fitted(
        [g for _ in range(60) for g in simulated(Noise(0.06, block=0.03), dict.fromkeys("abcd", 1.0), 4, rng)]
    )
    assert (calm.luck, calm.block) == pytest.approx((0.06, 0.03), rel=0.1)
    assert calm.wander < 0.05
    assert fitted([[Turn({"a": 1.0, "b": 1.0}), Turn({"a": 1.0})]]) is None
