"""The test double itself: reproducible, and its optimum is one."""

from __future__ import annotations

import pytest

from autotune.stats.outcome import Completed, OutOfMemory
from benchmarks.simulation import machines
from benchmarks.simulation.simulator import Bench


@pytest.mark.parametrize("make", [machines.mlp, machines.images, machines.conv, machines.embedding])
def test_the_optimum_is_what_enumeration_finds(make):
    machine = make()
    best = max(machine.rate(settings) for settings in machine.space().enumerate())
    assert machine.optimum() == pytest.approx(best)
    assert machine.rate(machine.best()) == machine.optimum()


def test_noise_follows_the_seed():
    machine = machines.conv()
    trials = [[Bench(machine, seed).run(machine.context.baseline) for _ in range(2)] for seed in (1, 1, 2)]
    assert trials[0] == trials[1] != trials[2]


def test_measured_rates_scatter_around_the_true_one():
    machine, bench = machines.conv(), Bench(machines.conv(), noise=0.02, drift=0.0)
    outcomes = [bench.run(machine.context.baseline) for _ in range(50)]
    rates = [o.measurement.rate for o in outcomes if isinstance(o, Completed) and o.measurement]
    assert sum(rates) / 50 == pytest.approx(machine.rate(machine.context.baseline), rel=0.01)
    assert bench.seconds == pytest.approx(sum(o.seconds for o in outcomes))


def test_memory_runs_out():
    machine = machines.big()
    assert isinstance(Bench(machine).run(machine.context.baseline.but(batch_size=512)), OutOfMemory)
    assert isinstance(Bench(machine).run(machine.context.baseline), Completed)
