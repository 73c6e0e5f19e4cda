"""What the user should know of the machine."""

from __future__ import annotations

from autotune.stats.measurement import CoreLatencies
from autotune.tuning.host_speed import cores_apart


def test_cores_far_apart_while_it_was_proven_are_named() -> None:
    latencies = CoreLatencies(((2, 25e-6), (2, 75e-6), (2, 75e-6), (2, 75e-6)))
    (line,) = cores_apart(latencies, {2: 25e-6})
    assert "in 75% of the undisturbed blocks of race and proof" in line
    assert "3.0 times as long between them" in line
    assert cores_apart(latencies, {2: 75e-6}) == cores_apart(CoreLatencies(), {}) == []
