"""Samplers, each run on a world until its (simulated) time is over; all begin with the baseline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.search.history import Trial
from autotune.search.planner import rank
from autotune.search.sampler import searches_of
from benchmarks.replay.world import Draws, World


@dataclass
class Run:
    """One search, as it went."""

    world: World
    level: str
    draws: Draws
    history: list[Trial] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    """Simulated seconds after each trial."""
    slowest: float = 0.0
    """Real seconds of the slowest proposal."""
    extra: float = 0.0
    """Simulated seconds on top of each trial: what starting a fresh Python costs."""

    def try_(self, settings: Settings, give_up_below: float = 0.0) -> float:
        """Measure; returns items per second, 0 where that failed."""
        outcome = self.draws.trial(settings, give_up_below)
        self.draws.seconds += self.extra
        self.history.append(Trial(settings, outcome, self.level))
        self.clock.append(self.draws.seconds)
        return self.history[-1].rate or 0.0

    def quality(self, trials: int, by_model: bool) -> float:
        """True share of the optimum that the recommendation after ``trials`` reaches."""
        space, history = self.world.spaces[self.level], self.history[:trials]
        own = space.context.baseline
        chosen = recommended(history, space, by_model) if any(o.rate for o in history) else own
        return max(self.world.truth(chosen), self.world.truth(own)) / self.world.optimum(self.level)


def recommended(history: Sequence[Trial], space: Space, by_model: bool) -> Settings:
    """What a search would hand over: the posterior's best, or simply the best mean measured."""
    if by_model:
        return next(iter(rank(history, space, 1, baseline=True)))
    rates: dict[Settings, list[float]] = {}
    for observation in history:
        rates.setdefault(observation.settings, []).append(observation.rate or 0.0)
    return max(rates, key=lambda s: sum(rates[s]) / len(rates[s]))


Stop = Callable[[Run], bool]


def within(seconds: float) -> Stop:
    """Stop once the simulated time is over."""
    return lambda run: run.draws.seconds >= seconds


def after(trials: int) -> Stop:
    """Stop after so many trials."""
    return lambda run: len(run.history) >= trials


SAMPLERS = {"ours": None, "random": "random", "tpe": "tpe", "gp": "optuna.samplers:GPSampler"}
"""Strategies by the option ``--sampler`` of `tune`."""


def search(name: str, world: World, level: str, seed: int, stop: Stop, extra: float = 0.0) -> Run:
    """One run of a strategy."""
    run, space = Run(world, level, world.draws(seed), extra=extra), world.spaces[level]
    searching = searches_of(SAMPLERS[name], seed)(space, space.context.baseline, True, ())
    while not stop(run):
        began = time.perf_counter()
        proposal = searching.ask()
        run.slowest = max(run.slowest, time.perf_counter() - began)
        if proposal is None:
            break
        run.try_(proposal.settings, proposal.give_up_below)
        searching.tell(run.history[-1])
    return run
