"""The record of a run: how far trials of the same settings differ, and the ratio of two of them."""

from __future__ import annotations

import math
import random

import pytest

from autotune.knobs.settings import Settings
from autotune.search.history import USUAL_NOISE, History, trial_noise
from tests.doubles.results import OWN, WORKERS, tried

FUSED = OWN.but(optimizer_impl="fused")
WINNER = WORKERS.but(optimizer_impl="fused")


def test_noise_of_two_that_agree_by_luck_is_not_zero() -> None:
    assert trial_noise([tried(OWN, 5)] * 2) == pytest.approx(USUAL_NOISE * math.sqrt(2 / 3))


def test_noise_of_many_repeats_is_theirs_whatever_their_settings_and_failures() -> None:
    draw = random.Random(0)
    scales = ((OWN, 1e3), (WORKERS, 5e4))
    history = [tried(s, scale * math.exp(draw.gauss(0, 0.2))) for s, scale in scales for _ in range(200)]
    assert trial_noise([*history, tried(OWN, 0)]) == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (WORKERS, OWN, 1.5),
        (WINNER, FUSED, 180 / 110),
        (OWN, OWN, None),
        (WORKERS.but(threads=7), OWN, None),
        (OWN.but(threads=3), OWN, None),
    ],
    ids=["alone", "within the winner", "no change", "not tried", "failed"],
)
def test_the_ratio_of_two_settings(ours: Settings, theirs: Settings, expected: float | None) -> None:
    trials = (tried(OWN, 100), tried(WORKERS, 150), tried(FUSED, 110), tried(WINNER, 180), tried(OWN.but(threads=3), 0))
    found = History(trials).ratio(ours, theirs)
    assert (found and found[0]) == (expected and pytest.approx(expected))


def test_the_last_trial_of_some_settings_counts() -> None:
    found = History((tried(OWN, 100), tried(OWN, 120), tried(WORKERS, 150))).ratio(WORKERS, OWN)
    assert found[0] == pytest.approx(150 / 120)
