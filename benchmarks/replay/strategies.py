"""Search strategies, each run on a world until its (simulated) time is over; all begin with the baseline."""

from __future__ import annotations

import random as stdlib_random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna

from autotune.knobs.settings import KNOB_NAMES, Settings
from autotune.knobs.space import Space
from autotune.search.history import Trial
from autotune.search.planner import Planner, rank
from benchmarks.replay.world import Draws, World

DEPENDENT = ("batch_size", "backend", "prefetch_factor")
"""Knobs that follow from others or exist only beside others."""
MOST_IDLE = 200
"""Infeasible and repeated draws cost a sampler nothing here; so many in a row say that it has nothing new."""


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


def staged(run: Run, seed: int, stop: Stop) -> None:
    """Our own search."""
    planner = Planner(run.world.spaces[run.level], _baseline(run), seed=seed, thorough=True)
    while not stop(run):
        began = time.perf_counter()
        proposal = planner.propose(run.history)
        run.slowest = max(run.slowest, time.perf_counter() - began)
        if proposal is None:
            return
        run.try_(proposal.settings, proposal.give_up_below)


def random(run: Run, seed: int, stop: Stop) -> None:
    """Uniform draws among feasible settings."""
    _sampled(run, optuna.samplers.RandomSampler(seed=seed), stop)


def tpe(run: Run, seed: int, stop: Stop) -> None:
    """Optuna's default sampler."""
    _sampled(run, optuna.samplers.TPESampler(seed=seed), stop)


def gp(run: Run, seed: int, stop: Stop) -> None:
    """Optuna's Gaussian process."""
    _sampled(run, optuna.samplers.GPSampler(seed=seed), stop)


def coordinate(run: Run, seed: int, stop: Stop) -> None:
    """One decision after the other: try all its values, keep the best; around again until nothing moves."""
    space, best = run.world.spaces[run.level], _baseline(run)
    rates = {best: run.try_(best)}
    order, moved = stdlib_random.Random(seed), True
    while moved and not stop(run):
        moved = False
        decisions = sorted({what for what, _ in space.moves(best)})
        order.shuffle(decisions)
        for decision in decisions:
            for settings in [s for what, s in space.moves(best) if what == decision and s not in rates]:
                if stop(run):
                    return
                rates[settings] = run.try_(settings)
            top = max(rates, key=rates.__getitem__)
            moved, best = moved or top != best, top


def exhaustive(run: Run, seed: int, stop: Stop) -> None:
    """Everything once, in random order."""
    everything = list(run.world.spaces[run.level].enumerate())
    stdlib_random.Random(seed).shuffle(everything)
    for settings in (_baseline(run), *everything):
        if stop(run):
            return
        run.try_(settings)


Strategy = Callable[[Run, int, Stop], None]
STRATEGIES: dict[str, Strategy] = {
    "ours": staged,
    "random": random,
    "tpe": tpe,
    "gp": gp,
    "coordinate": coordinate,
    "exhaustive": exhaustive,
}


def search(name: str, world: World, level: str, seed: int, stop: Stop, extra: float = 0.0) -> Run:
    """One run of a strategy."""
    run = Run(world, level, world.draws(seed), extra=extra)
    STRATEGIES[name](run, seed, stop)
    return run


def _baseline(run: Run) -> Settings:
    return run.world.spaces[run.level].context.baseline


def _sampled(run: Run, sampler: optuna.samplers.BaseSampler, stop: Stop) -> None:
    """An Optuna study over the same knobs; infeasible and repeated draws cost it nothing."""
    space, seen = run.world.spaces[run.level], dict[Settings, float]()
    study = optuna.create_study(direction="maximize", sampler=sampler)
    own = _baseline(run)
    study.enqueue_trial({k: v for k, v in own.as_dict().items() if v is not None} | {"global_batch": own.global_batch})
    idle = 0
    while idle < MOST_IDLE and not stop(run):
        trial = study.ask()
        settings = _drawn(space, trial)
        if settings is not None and settings not in seen:
            seen[settings] = run.try_(settings)
            idle = 0
        study.tell(trial, seen[settings] if settings else 0.0)
        idle += 1


def _drawn(space: Space, trial: optuna.Trial) -> Settings | None:
    """Settings from the trial's suggestions; None where they are not feasible."""
    values: dict[str, Any] = {
        name: trial.suggest_categorical(name, space.values[name]) for name in KNOB_NAMES if name not in DEPENDENT
    }
    if values["num_workers"]:
        values["prefetch_factor"] = trial.suggest_categorical("prefetch_factor", space.values["prefetch_factor"])
    if values["processes"] > 1:
        values["backend"] = trial.suggest_categorical("backend", space.values["backend"])
    batch = trial.suggest_categorical("global_batch", space.global_batches)
    if batch % values["processes"]:
        return None
    settings = Settings(**values, batch_size=batch // values["processes"])
    return settings if settings in space else None
