from __future__ import annotations

from autotune.runtime.pace import STEPS, WARMUP_STEPS, WINDOWS, Pace


class Words:
    """Counts what it is told."""

    begun = 0

    def begin(self) -> None:
        self.begun += 1

    def words(self, rate: float, expected: float) -> str:
        return f"{rate:.0f} of {expected:.0f}"


class Training:
    """Steps of so many seconds, on a clock moved by hand."""

    def __init__(self, expected: float, windows: int | None = None) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.slow = Words()
        self.pace = Pace(expected, self.said.append, self.slow, lambda: self.now, windows)

    def steps(self, count: int, seconds: float, items: float = 1.0) -> bool:
        """Whether it still looks."""
        going = True
        for _ in range(count):
            self.now += seconds
            going = self.pace.tick(items)
        return going


def test_a_burst_of_slow_steps_is_no_warning() -> None:
    training = Training(expected=100)
    assert training.steps(WARMUP_STEPS + 2 * STEPS, 1.0)
    assert training.steps(STEPS, 0.01)
    assert training.steps(2 * STEPS, 1.0)
    assert training.said == []
    assert training.slow.begun == 2


def test_training_that_stays_slow_is_said_once_with_its_rate() -> None:
    training = Training(expected=100)
    assert training.steps(WARMUP_STEPS + 10 * STEPS, 0.01)
    assert not training.steps(3 * STEPS, 0.1)
    assert training.said == ["10 of 100"]
    assert training.slow.begun == 1


def test_only_the_first_few_hundred_steps_are_looked_at() -> None:
    training = Training(expected=100, windows=WINDOWS)
    assert training.steps(WARMUP_STEPS + (WINDOWS - 1) * STEPS, 0.01)
    assert not training.steps(STEPS, 0.01)


def test_rates_are_items_over_seconds() -> None:
    training = Training(expected=640)
    training.steps(WARMUP_STEPS + 3 * STEPS, 0.1, items=64)
    assert training.said == []
    training = Training(expected=6400)
    training.steps(WARMUP_STEPS + 3 * STEPS, 0.1, items=64)
    assert training.said == ["640 of 6400"]


def test_pauses_are_not_training() -> None:
    training = Training(expected=10)
    for _ in range(20 * STEPS):
        training.steps(4, 0.1)
        training.now += 60.0
        training.pace.pause()
    assert training.said == []
