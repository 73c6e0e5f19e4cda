from __future__ import annotations

import pytest

from autotune.stats.outcome import (
    Compared,
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
    Compared: "compared",
}


def test_every_kind_has_a_name_of_its_own() -> None:
    assert {kind: kind.kind for kind in Outcome.__subclasses__()} == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_only_completed_trials_are_measured(kind: type[Outcome]) -> None:
    assert kind("why").measured is (kind is Completed)
