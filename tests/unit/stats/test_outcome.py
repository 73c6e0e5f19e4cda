from __future__ import annotations

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
