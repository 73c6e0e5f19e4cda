"""The fake bench: what it says is a formula, what it costs is its own clock's."""

from __future__ import annotations

import pytest

from autotune.core.errors import Interrupted
from autotune.core.outcome import Completed, Crashed
from autotune.testing.bench import BASELINE, FakeBench

QUIET = (0.0, 0.0, 0.0)
OTHER = BASELINE.but(num_workers=1)


def bench(**changes) -> FakeBench:
    return FakeBench(lambda settings: 2000.0 if settings == OTHER else 1000.0, noise=QUIET, **changes)


def test_a_trial_measures_the_formula_and_moves_the_clock() -> None:
    fake = bench(trial=3.0)
    outcome = fake.measure(OTHER, 0.0, 0.0)
    assert isinstance(outcome, Completed)
    assert outcome.measurement is not None
    assert outcome.measurement.rate == pytest.approx(2000.0)
    assert fake.clock() == 1003.0


def test_a_trial_fails_as_told() -> None:
    assert bench(failure=lambda _: Crashed("no")).measure(OTHER, 0.0, 0.0) == Crashed("no")


def test_a_contest_leaves_out_who_has_ended() -> None:
    fake = bench(dead=frozenset({"b"}))
    with fake.contest({"a": OTHER, "b": BASELINE}, 0.0) as contest:
        assert contest.round(1.0) == {"a": 2000.0}
    assert fake.clock() == pytest.approx(1000.0 + 0.6 * 2 + 2.0)


def test_the_same_seed_gives_the_same_noise() -> None:
    rates = [FakeBench(lambda _: 1000.0, seed=seed).measure(OTHER, 0.0, 0.0) for seed in (0, 0, 1)]
    assert rates[0] == rates[1] != rates[2]


def test_the_user_presses_ctrl_c_in_the_trial_that_was_named() -> None:
    fake = bench(interrupt_at=(2, None))
    fake.measure(OTHER, 0.0, 0.0)
    with pytest.raises(Interrupted):
        fake.measure(OTHER, 0.0, 0.0)
