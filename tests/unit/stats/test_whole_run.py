"""What a whole run gains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.stats.whole_run import ADDED_SECONDS, WholeRun, split_time

shares = st.floats(0, 0.95)


def test_start_and_evaluation_stay_as_they_are() -> None:
    run = WholeRun(start_seconds=10.0, step_seconds=0.1, other_share=0.2, steps=400)  # 10 + 40 + 10 s
    assert run.seconds() == pytest.approx(60.0)
    assert run.seconds(2.0) == pytest.approx(40.0 + ADDED_SECONDS)
    assert run.speedup(2.0) == pytest.approx(60.0 / (40.0 + ADDED_SECONDS))
    assert run.seconds(2.0, 5.0) == pytest.approx(45.0 + ADDED_SECONDS)
    assert run.seconds(1.0, 5.0) == pytest.approx(60.0)


def test_a_length_in_seconds_gives_the_steps() -> None:
    run = WholeRun(start_seconds=10.0, step_seconds=0.1, other_share=0.2).of(60.0)
    assert (run.steps, run.seconds()) == (400, pytest.approx(60.0))


def test_without_its_length_an_epoch_is_forecast() -> None:
    assert WholeRun(10.0, 0.1, other_share=0.2).speedup(2.0) == pytest.approx(1 / 0.6)
    assert WholeRun(10.0, 0.1, other_share=0.2).seconds() is None
    assert WholeRun(10.0, 0.1).speedup(2.0) is None


@given(st.floats(0, 1e3), shares, st.integers(1, 10**6), st.floats(1.0, 50.0))
def test_a_run_gains_no_more_than_its_steps(start: float, share: float, steps: int, of_a_step: float) -> None:
    found = WholeRun(start, 0.01, share, steps).speedup(of_a_step)
    assert 0.0 < found <= of_a_step + 1e-9


def test_what_follows_an_epoch_is_spread_over_it() -> None:
    seconds = [1.0, 0.1, 0.1, 0.1] * 2  # each fourth step has an evaluation before it, and workers that start
    assert split_time(seconds, [0.5, None, None, None] * 2, 4) == pytest.approx((0.2, 0.5 / 1.3))


def test_long_steps_inside_an_epoch_count_too() -> None:
    assert split_time([0.1] * 9 + [1.1], [None] * 10, None) == pytest.approx((0.1, 0.5))


@pytest.mark.parametrize(("ends", "epoch"), [([], None), ([None] * 3, 100), ([0.0] * 3, 1)])
def test_what_was_not_seen_is_not_guessed(ends: list[float | None], epoch: int | None) -> None:
    assert split_time([0.1] * len(ends), ends, epoch)[1] is None
