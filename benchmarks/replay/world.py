"""What a strategy is let loose on: a recorded grid or a modelled machine, with its noise, its prices and its truth."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.stats.measurement import Block, Measurement, enough
from autotune.stats.outcome import Completed, Outcome
from autotune.trial.messages import TrialSpec
from benchmarks.grid.file import Grid, Recorded, rate
from tests.doubles.simulation import simulator
from tests.doubles.simulation.simulator import Machine

SPEC = TrialSpec(settings=Settings())
FAILED_SECONDS = 1.0
SERVER_SECONDS = 3.0
"""The first trial of an allocator starts a process that imports torch and the task."""
NEAREST = 9
"""A trial has the luck of one of so many trials of the baseline recorded nearest in time."""


class Process(Protocol):
    """A resident contender: one process tree with its own luck."""

    def block(self, seconds: float) -> float:
        """Items per second of one block; the clock moves on."""


class Draws(Protocol):
    """One reproducible run on a world. ``seconds`` is the simulated clock."""

    seconds: float

    def trial(self, settings: Settings, give_up_below: float = 0.0) -> Outcome:
        """One trial of fresh processes; the clock moves on by its price."""

    def process(self, settings: Settings) -> Process | None:
        """A warm resident; None where it fails. The clock moves on by start and warm-up."""


class World(Protocol):
    """One task on one machine."""

    name: str

    @property
    def spaces(self) -> Mapping[str, Space]:
        """Feasible settings by level."""

    def truth(self, settings: Settings) -> float:
        """True items per second; 0 where the settings fail."""

    def optimum(self, level: str) -> float:
        """The best true rate of ``level``."""

    def draws(self, seed: int) -> Draws:
        """A fresh run."""


class GridWorld:
    """A recorded grid: what trials look like and cost is recorded, and so is the machine's luck as time goes by.

    A draw is a recorded trial of the settings, brought to their true rate and then multiplied by luck: for a trial the
    residual of a trial of the baseline recorded near the present time, drift and bursts included; for a resident
    process that of a recorded contest, where drift meets all alike.
    """

    def __init__(self, name: str, grid: Grid) -> None:
        self.name, self.grid = name, grid
        self.spaces = grid.spaces
        anchors = [t for t in grid.by_settings[grid.header.baseline] if rate(t.outcome) > 0]
        own = math.log(self.truth(grid.header.baseline))
        self.times = np.array([trial.at for trial in anchors])
        self.lucks = np.array([math.log(rate(trial.outcome)) - own for trial in anchors])
        self.process_lucks = np.array([0.0, *_process_lucks(grid)])

    def truth(self, settings: Settings) -> float:
        """See `World`."""
        return self.grid.rates.get(settings, 0.0)

    def optimum(self, level: str) -> float:
        """See `World`."""
        return self.grid.optimum(level)[1]

    def draws(self, seed: int) -> GridDraws:
        """See `World`."""
        return GridDraws(self, seed)


def _process_lucks(grid: Grid) -> list[float]:
    """Residuals of one process tree's log rate, from what the contests say of the same pair.

    A ratio holds the luck of two trees, and what is left of the scatter of its rounds; both are taken out.
    """
    lucks = []
    for settings, ratios in grid.paired.items():
        if len(ratios) > 1 and settings != grid.header.baseline:
            unbiased = math.sqrt(len(ratios) / (len(ratios) - 1) / 2)
            lucks += [unbiased * (ratio - sum(ratios) / len(ratios)) for ratio in ratios]
    if not lucks:
        return []
    all_of_it = float(np.var(lucks))
    rounds = statistics.median(turns.scatter for turns in grid.turns) / 2
    return list(np.array(lucks) * math.sqrt(max(0.0, 1 - rounds / all_of_it)))


class GridDraws:
    """See `Draws`."""

    def __init__(self, world: GridWorld, seed: int) -> None:
        self.world, self.rng = world, np.random.default_rng(seed)
        self.seconds = 0.0
        self.servers = {world.grid.header.baseline.allocator}
        self._offset = float(self.rng.uniform(0, world.times[-1] + 1))

    def trial(self, settings: Settings, give_up_below: float = 0.0) -> Outcome:
        """See `Draws`."""
        self.seconds += starting(settings, self.servers)
        outcome, truth = self._draw(settings).outcome, self.world.truth(settings)
        if not isinstance(outcome, Completed) or outcome.measurement is None:
            self.seconds += FAILED_SECONDS
            return outcome
        measured = shortened(outcome.measurement, faster(outcome, truth, self._luck()), give_up_below)
        whole = sum(block.seconds for block in outcome.measurement.blocks)
        seconds = outcome.seconds - whole + sum(block.seconds for block in measured.blocks)
        self.seconds += seconds
        return replace(outcome, measurement=measured, seconds=seconds)

    def process(self, settings: Settings) -> GridProcess | None:
        """See `Draws`."""
        self.seconds += starting(settings, self.servers)
        outcome, truth = self._draw(settings).outcome, self.world.truth(settings)
        if not isinstance(outcome, Completed) or outcome.measurement is None:
            self.seconds += FAILED_SECONDS
            return None
        self.seconds += outcome.start_seconds + outcome.measurement.warmup_seconds
        luck = float(self.rng.choice(self.world.process_lucks))
        return GridProcess(self, outcome.measurement.blocks, faster(outcome, truth, luck))

    def _draw(self, settings: Settings) -> Recorded:
        trials = self.world.grid.by_settings[settings]
        return trials[int(self.rng.integers(len(trials)))]

    def _luck(self) -> float:
        """Log of how much faster trials run at this time than they usually do."""
        at = (self._offset + self.seconds) % (self.world.times[-1] + 1)
        nearest = np.argsort(np.abs(self.world.times - at))[:NEAREST]
        return float(self.world.lucks[self.rng.choice(nearest)])


def starting(settings: Settings, servers: set[str]) -> float:
    """Seconds until the server for these settings runs; it stays among ``servers``."""
    waits = settings.allocator not in servers
    servers.add(settings.allocator)
    return SERVER_SECONDS * waits


def faster(outcome: Outcome, truth: float, luck: float) -> float:
    """How much faster than recorded ``outcome`` is, brought to its true rate and to this luck."""
    return truth / rate(outcome) * math.exp(luck)


class GridProcess:
    """See `Process`."""

    def __init__(self, draws: GridDraws, blocks: tuple[Block, ...], faster: float) -> None:
        self.draws, self.blocks, self.faster = draws, blocks, faster

    def block(self, seconds: float) -> float:
        """See `Process`."""
        items = took = 0.0
        while took < seconds:
            block = self.blocks[int(self.draws.rng.integers(len(self.blocks)))]
            items, took = items + block.items, took + block.seconds / self.faster
        self.draws.seconds += took
        return items / took


def shortened(measurement: Measurement, speed: float, give_up_below: float) -> Measurement:
    """What a trial that stops by its own rules would have kept of a longer recording."""
    blocks: list[Block] = []
    for block in measurement.blocks:
        blocks.append(replace(block, seconds=block.seconds / speed))
        so_far = Measurement(tuple(blocks))
        if enough(so_far, SPEC.min_seconds, SPEC.max_seconds, SPEC.target_error, give_up_below):
            break
    return replace(measurement, blocks=tuple(blocks))


class ModelWorld:
    """A modelled machine: an analytic rate, with written-down noise and drift."""

    def __init__(self, machine: Machine, noise: float = 0.02, drift: float = 0.01) -> None:
        self.name, self.machine, self.noise, self.drift = machine.name, machine, noise, drift
        self.spaces = {level: machine.space(level) for level in LEVELS}

    def truth(self, settings: Settings) -> float:
        """See `World`."""
        return self.machine.rate(settings) if self.machine.fits(settings) else 0.0

    def optimum(self, level: str) -> float:
        """See `World`."""
        return self.machine.optimum(level)

    def draws(self, seed: int) -> ModelDraws:
        """See `World`."""
        return ModelDraws(self, seed)


class ModelDraws:
    """See `Draws`."""

    def __init__(self, world: ModelWorld, seed: int) -> None:
        self.bench = simulator.Bench(world.machine, seed, noise=world.noise, drift=world.drift)
        self.servers = {world.machine.context.baseline.allocator}

    @property
    def seconds(self) -> float:
        """Simulated seconds so far."""
        return self.bench.seconds

    @seconds.setter
    def seconds(self, value: float) -> None:
        self.bench.seconds = value

    def trial(self, settings: Settings, give_up_below: float = 0.0) -> Outcome:
        """See `Draws`."""
        self.seconds += starting(settings, self.servers)
        outcome = self.bench.run(settings)
        if not isinstance(outcome, Completed) or outcome.measurement is None:
            return outcome
        measured = shortened(outcome.measurement, 1.0, give_up_below)
        saved = sum(b.seconds for b in outcome.measurement.blocks) - sum(b.seconds for b in measured.blocks)
        self.bench.seconds -= saved
        return replace(outcome, measurement=measured, seconds=outcome.seconds - saved)

    def process(self, settings: Settings) -> ModelProcess | None:
        """See `Draws`."""
        self.seconds += starting(settings, self.servers)
        outcome = self.bench.run(settings)
        if not isinstance(outcome, Completed) or outcome.measurement is None:
            return None
        self.bench.seconds -= sum(block.seconds for block in outcome.measurement.blocks)
        return ModelProcess(self, outcome.measurement)


class ModelProcess:
    """See `Process`."""

    def __init__(self, draws: ModelDraws, measured: Measurement) -> None:
        self.draws, self.measured = draws, measured

    def block(self, seconds: float) -> float:
        """See `Process`."""
        blocks = self.measured.blocks
        self.draws.seconds += max(seconds, blocks[0].seconds)
        return blocks[int(self.draws.bench.rng.integers(len(blocks)))].rate
