"""The record of a run: how far trials of the same settings differ, and the effect of each knob."""

from __future__ import annotations

import math
import random

import pytest

from autotune.search.history import USUAL_NOISE, History, effects, trial_noise
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


def test_alone_and_in_the_winner() -> None:
    found = effects(History((tried(OWN, 100), tried(WORKERS, 150), tried(FUSED, 110), tried(WINNER, 180))), OWN, WINNER)
    by_name = {each.knob: each for each in found}
    assert by_name["num_workers"].alone == pytest.approx(1.5)
    assert by_name["num_workers"].kept == pytest.approx(180 / 110)
    assert by_name["optimizer_impl"].alone == pytest.approx(1.1)
    assert by_name["optimizer_impl"].kept == pytest.approx(1.2)


def test_what_was_not_tried_is_not_known() -> None:
    (found,) = effects(History((tried(OWN, 100), tried(WINNER, 180), tried(FUSED, 150))), OWN, WINNER)[-1:]
    assert (found.knob, found.alone, found.kept) == ("optimizer_impl", 1.5, None)


def test_the_last_trial_of_some_settings_counts() -> None:
    history = History((tried(OWN, 100), tried(OWN, 120)))
    measured = history.of(OWN)
    assert measured is not None
    assert measured.rate == pytest.approx(120)
