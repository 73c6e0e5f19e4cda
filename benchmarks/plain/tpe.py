"""Optuna as most people use it: its default sampler (TPE), and fresh processes for each trial.

It searches the knobs of autotune's space that usually matter, with the same values, starts from the user's settings,
and combinations that do not fit the machine are pruned without a trial: all of that is a present to it.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna

from autotune.knobs.knob import Context
from autotune.knobs.settings import BY_NAME, Settings
from autotune.knobs.space import Space, build
from autotune.knobs.stated import baseline_settings
from autotune.probes.inventory import probe
from autotune.trial.target import recognise
from autotune.tuning.runner import open_runner
from benchmarks.plain.side_by_side import Contender, Failed, Trainer

FLAGS = ("allocator", "num_workers", "precision", "channels_last", "optimizer_impl")


def space_of(task: Path, level: str) -> Space:
    """Return the space that autotune searches for ``task``."""
    inventory = probe()
    with open_runner(recognise(task), inventory, 0, 600.0) as runner:
        facts = runner.describe()
    return build(Context(inventory, facts, baseline_settings(facts, inventory)), level)


def search(task: Path, space: Space, budget: float, trial_seconds: float, seed: int) -> tuple[Settings, int]:
    """Return the best settings that TPE finds within ``budget`` seconds, and how many trials it made."""
    offered, own = dimensions(space), space.context.baseline
    best, trials, ends = (own, 0.0), 0, time.monotonic() + budget

    def objective(trial: optuna.Trial) -> float:
        nonlocal best, trials
        settings = suggested(trial, offered, own)
        if settings not in space:
            raise optuna.TrialPruned
        trials += 1
        try:
            found = rate(task, settings, trial_seconds)
        except Failed as error:
            raise optuna.TrialPruned(str(error)) from error
        if found > best[1] and time.monotonic() < ends:
            best = settings, found
        print(f"  TPE trial {trials}: {found:.1f}/s", file=sys.stderr)
        return found

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(positions(own, offered))
    study.optimize(objective, timeout=budget)
    return best[0], trials


def rate(task: Path, settings: Settings, seconds: float) -> float:
    """Return items per second of one fresh start.

    Raises:
        Failed: it ended without a rate.
    """
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Contender(task, settings.as_dict()), Path(folder))
        with contextlib.closing(trainer):
            trainer.ready()
            return trainer.rate(seconds)


def dimensions(space: Space) -> dict[str, tuple[Any, ...]]:
    """Return values by name. Knobs that rarely pay (prefetching, interop threads) stay as the user has them."""
    shapes = [(p, t) for p in space.values["processes"] for t in space.values["threads"]]
    fitting = [(p, t) for p, t in shapes if t == 1 or p * t <= space.context.inventory.budget.threads]
    flags = {name: space.values[name] for name in FLAGS}
    return {"shape": tuple(fitting), "global_batch": space.global_batches, **flags}


def suggested(trial: optuna.Trial, offered: Mapping[str, tuple[Any, ...]], own: Settings) -> Settings:
    """Return the settings that ``trial`` suggests; ordered values as numbers, the others as categories."""

    def suggest(name: str) -> Any:
        values = offered[name]
        if len(values) == 1:
            return values[0]
        if ordered(name):
            return values[trial.suggest_int(name, 0, len(values) - 1)]
        return values[trial.suggest_categorical(name, tuple(range(len(values))))]

    processes, threads = suggest("shape")
    flags = {name: suggest(name) for name in FLAGS}
    batch = max(1, suggest("global_batch") // processes)
    return own.but(**flags, processes=processes, threads=threads, batch_size=batch)


def positions(settings: Settings, offered: Mapping[str, tuple[Any, ...]]) -> dict[str, int]:
    """Return what `suggested` must draw to arrive at ``settings``."""
    own = settings.as_dict() | {"shape": (settings.processes, settings.threads), "global_batch": settings.global_batch}
    movable = {name: values for name, values in offered.items() if len(values) > 1 and own[name] in values}
    return {name: values.index(own[name]) for name, values in movable.items()}


def ordered(name: str) -> bool:
    """Return True if neighbouring values act alike."""
    return name == "global_batch" or (name in BY_NAME and BY_NAME[name].ordinal)
