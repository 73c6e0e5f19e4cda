"""Optuna as most people use it: its default sampler (TPE), and a fresh process per trial.

It searches the knobs of autotune's space that usually matter, with the same values, starts from today's settings, and
combinations that do not fit the machine are pruned without a trial: all of that is a present to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.knobs.table import BY_NAME
from benchmarks.rivals.history import Choice, Method, best_so_far
from benchmarks.rivals.launcher_sweep import FLAGS, batched
from benchmarks.rivals.measuring import TimeUp
from benchmarks.rivals.stage import Search, Stage

NAME = "Optuna TPE"


def methods(stage: Stage, budget: float) -> list[Method]:
    """Trial after trial until the budget is over."""
    search = Search(stage, budget)
    optimize(stage.spaces[stage.level], search, stage.seed)
    trials = tuple(search.trials)
    timeline = best_so_far(Choice(stage.current), trials)
    return [Method(NAME, stage.level, timeline, trials, f"{len(trials)} trials", budget)]


def optimize(space: Space, search: Search, seed: int) -> None:
    """One study."""
    import optuna

    offered, today = dimensions(space), space.context.baseline

    def objective(trial: optuna.Trial) -> float:
        settings = suggested(trial, offered, today)
        if settings not in space:
            raise optuna.TrialPruned
        try:
            found = search.measure(settings)
        except TimeUp:
            study.stop()
            found = None
        if found is None:
            raise optuna.TrialPruned
        return found

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(positions(today, offered))
    study.optimize(objective, timeout=search.left)


def dimensions(space: Space) -> dict[str, tuple[Any, ...]]:
    """Values by name. Knobs that rarely pay (prefetching, interop threads) stay as today."""
    shapes = [(p, t) for p in space.values["processes"] for t in space.values["threads"]]
    fitting = [(p, t) for p, t in shapes if t == 1 or p * t <= space.context.inventory.budget.threads]
    flags = {name: space.values[name] for name in FLAGS}
    return {"shape": tuple(fitting), "global_batch": space.global_batches, **flags}


def suggested(trial: Any, offered: Mapping[str, tuple[Any, ...]], today: Settings) -> Settings:
    """Settings that ``trial`` suggests; ordered values as numbers, the others as categories."""

    def suggest(name: str) -> Any:
        values = offered[name]
        if len(values) == 1:
            return values[0]
        if ordered(name):
            return values[trial.suggest_int(name, 0, len(values) - 1)]
        return values[trial.suggest_categorical(name, tuple(range(len(values))))]

    processes, threads = suggest("shape")
    flags = {name: suggest(name) for name in FLAGS}
    return batched(today.but(**flags, processes=processes, threads=threads), suggest("global_batch"))


def positions(settings: Settings, offered: Mapping[str, tuple[Any, ...]]) -> dict[str, int]:
    """What `suggested` must draw to arrive at ``settings``."""
    own = settings.as_dict() | {"shape": (settings.processes, settings.threads), "global_batch": settings.global_batch}
    movable = {name: values for name, values in offered.items() if len(values) > 1 and own[name] in values}
    return {name: values.index(own[name]) for name, values in movable.items()}


def ordered(name: str) -> bool:
    """True where neighbouring values act alike."""
    return name == "global_batch" or (name in BY_NAME and BY_NAME[name].ordinal)
