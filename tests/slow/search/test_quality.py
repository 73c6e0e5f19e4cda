"""How close to the optimum the project's own search comes, counted over seeds, in simulated time."""

import statistics

import numpy as np
import pytest

from benchmarks.replay.strategies import after, search
from benchmarks.replay.world import ModelWorld
from tests.doubles.simulation import machines
from tests.doubles.simulation.simulator import Machine
from tests.unit.search.test_planner import driven


def found(
    machine: Machine, level: str, trials: int, seeds: range, noise: float = 0.02, how: str = "ours"
) -> list[float]:
    """Return the share of the optimum that each seed's search reaches."""
    world = ModelWorld(machine, noise)
    return [search(how, world, level, seed, after(trials)).quality(trials, by_model=True) for seed in seeds]


@pytest.mark.parametrize(
    ("make", "level", "trials", "seeds", "median", "tenth"),
    [
        (machines.images, "safe", 25, 10, 0.97, 0.93),
        (machines.transformer, "amp", 25, 10, 0.97, 0.93),
        (machines.embedding, "safe", 25, 10, 0.97, 0.93),
        (machines.mlp, "safe", 16, 5, 0.97, 0.0),
        (machines.conv, "amp", 16, 5, 0.97, 0.0),
        (machines.big, "safe", 40, 1, 0.97, 0.0),
        (machines.big, "amp", 40, 1, 0.97, 0.0),
        (machines.big, "max", 40, 3, 0.97, 0.0),
        (machines.strange, "safe", 40, 3, 0.9, 0.0),  # made against the search's expectations
        (machines.strange, "max", 40, 3, 0.9, 0.0),
    ],
)
def test_the_optimum_is_near_within_some_trials(make, level, trials, seeds, median, tenth) -> None:
    qualities = found(make(), level, trials, range(seeds))
    assert statistics.median(qualities) >= median
    assert np.quantile(qualities, 0.1) >= tenth


def test_a_search_stops_where_nothing_matters() -> None:
    counts = [len(driven(machines.flat(), "safe", 40, seed)) for seed in range(15)]
    assert statistics.median(counts) <= 22
