"""How long a run takes where the user does not say."""

from __future__ import annotations

import pytest

from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Outcome, TimedOut
from autotune.tuning.budget import default_budget
from autotune.tuning.options import Options


def baseline(step_seconds: float) -> Outcome:
    """A trial of ten steps."""
    return Completed(measurement=Measurement((Block(640, 10 * step_seconds, 10),)))


@pytest.mark.parametrize(
    ("outcome", "train_seconds", "expected"),
    [
        (None, None, 90.0),
        (TimedOut("slow"), None, 90.0),
        (baseline(0.001), None, 60.0),
        (baseline(0.1), None, 90.0),
        (baseline(2.0), None, 150.0),
        (baseline(0.001), 3600.0, 72.0),
        (baseline(0.1), 36_000.0, 600.0),
        (None, 4 * 3600.0, 288.0),
    ],
)
def test_the_step_and_the_training_ahead_decide(
    outcome: Outcome | None, train_seconds: float | None, expected: float
) -> None:
    assert default_budget(train_seconds, outcome) == expected


def test_what_the_user_says_is_final() -> None:
    assert Options(budget=20.0, train_seconds=36_000.0).seconds(baseline(2.0)) == 20.0
    assert Options().seconds(baseline(2.0)) == 150.0
