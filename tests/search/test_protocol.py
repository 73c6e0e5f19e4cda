"""How far trials of the same settings differ."""

from __future__ import annotations

import math
import random

import pytest

from autotune.knobs.settings import Settings
from autotune.search.protocol import USUAL_NOISE, Observation, far_apart, trial_noise
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed

OWN, OTHER = Settings(), Settings(batch_size=2)


def seen(settings: Settings, rate: float, latency: float = 0.0) -> Observation:
    measurement = Measurement((Block(round(rate * 1e6), 1e6, 1, core_latency=latency),))
    return Observation(settings, Completed(measurement=measurement), "safe")


def test_without_repeats_it_is_the_usual_one():
    assert trial_noise([]) == trial_noise([seen(OWN, 1.0), seen(OTHER, 9.0)]) == USUAL_NOISE


def test_two_that_agree_by_luck_do_not_say_zero():
    assert trial_noise([seen(OWN, 5.0)] * 2) == pytest.approx(USUAL_NOISE * math.sqrt(2 / 3))


def test_many_repeats_tell_it_whatever_their_settings_and_failures():
    draw = random.Random(0)
    history = [
        seen(s, scale * math.exp(draw.gauss(0, 0.2))) for s, scale in ((OWN, 1), (OTHER, 50)) for _ in range(200)
    ]
    assert trial_noise([*history, Observation(OWN, Crashed("no"), "safe")]) == pytest.approx(0.2, rel=0.1)


def test_cores_are_far_apart_where_as_many_threads_were_once_nearer():
    near, far = seen(OWN, 2.0, 25e-6), seen(OWN, 1.0, 75e-6)
    more_threads, alone = seen(OWN.but(threads=8), 3.0, 90e-6), seen(OWN.but(threads=1), 1.0)
    assert far_apart([near, far, more_threads, alone]) == (False, True, False, False)
    assert far_apart([far, far]) == (False, False), "further apart than what?"


def test_repeats_with_the_cores_in_other_places_are_no_noise():
    moved = [seen(OWN, 2.0, 25e-6), seen(OWN, 2.0, 26e-6), seen(OWN, 1.0, 75e-6), seen(OWN, 1.0, 76e-6)]
    unmoved = [seen(OWN, 2.0, 25e-6), seen(OWN, 2.0, 26e-6), seen(OWN, 1.0, 25e-6), seen(OWN, 1.0, 26e-6)]
    assert trial_noise(moved) < USUAL_NOISE < 0.2 < trial_noise(unmoved)
