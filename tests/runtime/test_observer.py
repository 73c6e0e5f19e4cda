from __future__ import annotations

from pathlib import Path

import pytest
from autotune.runtime.observer import LEAST_WINDOWS, RateObserver
from autotune.runtime.pace import STEPS, WARMUP_STEPS

from autotune.store.observed import read


class Training:
    """Steps on a clock that is moved by hand; the profile promises 10 ms for each."""

    def __init__(self, profile: Path) -> None:
        self.now = 0.0
        self.observer = RateObserver(profile, "safe", 0.010, lambda: self.now)

    def steps(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.now += seconds
            assert self.observer.tick()


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "train.yaml"


def test_the_rate_of_a_training_is_kept_once(profile: Path) -> None:
    training = Training(profile)
    training.steps(WARMUP_STEPS, 5.0)
    training.steps(LEAST_WINDOWS * STEPS, 0.020)
    training.observer.keep()
    training.observer.keep()
    (found,) = read(profile)
    assert (found.level, found.steps, found.share) == ("safe", LEAST_WINDOWS * STEPS, 0.5)


def test_an_evaluation_now_and_then_does_not_count(profile: Path) -> None:
    training = Training(profile)
    training.steps(WARMUP_STEPS, 0.01)
    for _ in range(10):
        training.steps(5 * STEPS, 0.010)
        training.now += 60.0
    training.observer.keep()
    assert read(profile)[0].share == 1.0


def test_short_trainings_say_nothing(profile: Path) -> None:
    training = Training(profile)
    training.steps(WARMUP_STEPS + (LEAST_WINDOWS - 1) * STEPS, 0.01)
    training.observer.keep()
    assert read(profile) == ()


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    training = Training(tmp_path / "gone" / "train.yaml")
    training.steps(WARMUP_STEPS + LEAST_WINDOWS * STEPS, 0.01)
    training.observer.keep()
