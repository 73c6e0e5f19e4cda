"""The search on a machine that is made against its expectations, in simulated time."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.replay.strategies import after, search
from benchmarks.replay.world import ModelWorld
from benchmarks.simulation import machines


@pytest.mark.parametrize("level", ["safe", "max"])
def test_a_machine_against_all_expectation_is_found_out(level: str) -> None:
    world = ModelWorld(machines.strange())
    found = [search("ours", world, level, seed, after(40)).quality(40, by_model=True) for seed in range(3)]
    assert statistics.median(found) >= 0.9
