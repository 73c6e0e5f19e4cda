"""The record of a run: how far trials of the same settings differ."""

from __future__ import annotations

import math
import random

import pytest

from autotune.search.history import USUAL_NOISE, trial_noise
from tests.doubles.results import OWN, WORKERS, tried


def test_noise_of_two_that_agree_by_luck_is_not_zero() -> None:
    assert trial_noise([tried(OWN, 5)] * 2) == pytest.approx(USUAL_NOISE * math.sqrt(2 / 3))


def test_noise_of_many_repeats_is_theirs_whatever_their_settings_and_failures() -> None:
    draw = random.Random(0)
    scales = ((OWN, 1e3), (WORKERS, 5e4))
    history = [tried(s, scale * math.exp(draw.gauss(0, 0.2))) for s, scale in scales for _ in range(200)]
    assert trial_noise([*history, tried(OWN, 0)]) == pytest.approx(0.2, rel=0.1)
