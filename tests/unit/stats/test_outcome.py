from __future__ import annotations

import dataclasses

import pytest

from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import (
    Completed,
    Crashed,
    NotApplied,
    Outcome,
    OutOfMemory,
    Skipped,
    TimedOut,
    WrongNumbers,
)

KINDS = {
    Completed: "completed",
    OutOfMemory: "out-of-memory",
    TimedOut: "timed-out",
    Crashed: "crashed",
    WrongNumbers: "wrong-numbers",
    NotApplied: "not-applied",
    Skipped: "skipped",
}


def test_every_kind_has_a_name_of_its_own() -> None:
    assert {kind: kind.kind for kind in Outcome.__subclasses__()} == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_only_completed_trials_are_measured(kind: type[Outcome]) -> None:
    assert kind("why").measured is (kind is Completed)


@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_are_frozen_and_compare_by_value(kind: type[Outcome]) -> None:
    outcome = kind("why", "log")
    assert outcome == kind("why", "log") != kind("else", "log")
    assert hash(outcome) == hash(kind("why", "log"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        outcome.reason = "other"  # type: ignore[misc]


def test_a_crash_is_not_an_out_of_memory_of_the_same_words() -> None:
    assert Crashed("memory") != OutOfMemory("memory")


def test_a_completed_trial_holds_what_it_measured() -> None:
    measurement = Measurement((Block(10, 1.0, 1),))
    outcome = Completed(measurement=measurement, losses=(1.0, 0.5), seconds=2.0, start_seconds=0.5)
    assert outcome.measurement is measurement
    assert outcome.reason == ""
