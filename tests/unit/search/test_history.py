"""What each knob brought."""

from __future__ import annotations

import pytest

from autotune.knobs.settings import Settings
from autotune.search.history import History, TriedSettings, effects
from autotune.stats.measurement import Block, Measurement

OWN = Settings(threads=2, batch_size=64)
WORKERS = OWN.but(num_workers=2)
FUSED = OWN.but(optimizer_impl="fused")
WINNER = WORKERS.but(optimizer_impl="fused")


def tried(settings: Settings, rate: float, seconds: float = 0.0) -> TriedSettings:
    """A trial; a rate of 0 failed."""
    measured = Measurement(tuple(Block(round(100 * rate), 100.0, 10) for _ in range(3))) if rate else None
    return TriedSettings(settings, "safe", "moves", seconds, measured, "completed" if rate else "crashed")


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


def test_a_failure_is_no_measurement() -> None:
    assert effects(History((tried(OWN, 100), tried(WORKERS, 0), tried(WINNER, 100))), OWN, WINNER) == ()


def test_the_last_trial_of_some_settings_counts() -> None:
    history = History((tried(OWN, 100), tried(OWN, 120)))
    measured = history.of(OWN)
    assert measured is not None
    assert measured.rate == pytest.approx(120)


def test_no_change_has_no_effect() -> None:
    assert effects(History((tried(OWN, 100),)), OWN, OWN) == ()
