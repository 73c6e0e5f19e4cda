"""Is the baseline that a trial measures what plain training makes beside the same neighbour, started from one shell?"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.knobs.settings import Settings
from autotune.knobs.stated import baseline_settings
from autotune.probes.cpu_time import Neighbours
from autotune.probes.inventory import probe
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.runner import Runner, RunningTrial, Timeouts
from autotune.trial.target import recognise
from autotune.tuning.runner import open_runner
from benchmarks import stamp
from benchmarks.neighbour import NICED, NONE, neighbour
from benchmarks.plain.side_by_side import Contender, Trainer
from benchmarks.ratios import ratio_of

LOADS = (NONE, NICED, "steady")
PATIENCE = Timeouts(starting=120.0, stepping=120.0)
"""Two threads beside an equal neighbour wait for each other for long."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this experiment."""
    parser.add_argument("task", type=Path)
    parser.add_argument("--replicates", type=int, default=4, help="of each load: new processes")
    parser.add_argument("--rounds", type=int, default=12, help="of each generation: a block of each, in random order")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a block")
    parser.add_argument("--threads", type=int, help="default: the user's")
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/honesty-neighbours-<task>.json")


def main(arguments: argparse.Namespace) -> None:
    """Record, then print a table."""
    path = arguments.out or stamp.FOLDER / f"honesty-neighbours-{arguments.task.stem}.json"
    task, inventory, dice = arguments.task.resolve(), probe(), random.Random(0)
    with open_runner(recognise(task), inventory, 0, 3600.0) as runner:
        settings = baseline_settings(runner.describe(), inventory)
        settings = settings.but(threads=arguments.threads or settings.threads)
        data = {**stamp.stamp(inventory), "task": task.stem, "baseline": settings.as_dict()}
        generations: list[dict[str, Any]] = []
        for number in range(arguments.replicates):
            for load in arguments.loads.split(","):
                others = Neighbours()
                with neighbour(load), training(task, settings) as plain, resident(runner, settings) as trial:
                    turns = [turn(plain, trial, arguments.seconds, dice) for _ in range(arguments.rounds)]
                    foreign = round(others.load(settings.threads).taken, 2)
                generations.append({"load": load, "others": foreign, "rates": turns})
                stamp.save(path, {**data, "generations": generations, "rows": rows(generations)})
                print(number, load, round(math.exp(log_ratio(turns)), 3), f"others {foreign}", flush=True)
    print(stamp.table(rows(generations)))


@contextlib.contextmanager
def training(task: Path, settings: Settings) -> Iterator[Trainer]:
    """Yield plain training in this shell's session, warm; it sleeps until it is asked."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Contender(task, settings.as_dict()), Path(folder))
        with contextlib.closing(trainer):
            trainer.ready()
            yield trainer


@contextlib.contextmanager
def resident(runner: Runner, settings: Settings) -> Iterator[RunningTrial]:
    """Yield a trial, warm and paused."""
    with runner.start(TrialSpec(settings=settings, resident=True), PATIENCE) as trial:
        trial.ready()
        yield trial


def turn(plain: Trainer, trial: RunningTrial, seconds: float, dice: random.Random) -> dict[str, float]:
    """Return items per second of a block of each, in random order."""

    def trial_rate() -> float:
        block = trial.block(seconds)
        if block is None:
            raise SystemExit(f"the trial ended: {trial.server.tail()}")
        return block.rate

    measures = {"plain": lambda: plain.rate(seconds), "trial": trial_rate}
    return {name: round(measures[name](), 1) for name in dice.sample(sorted(measures), len(measures))}


def log_ratio(turns: list[dict[str, float]]) -> float:
    """Return the log ratio of trial to plain training: the median over the rounds of a generation."""
    return statistics.median(math.log(each["trial"] / each["plain"]) for each in turns)


def rows(generations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return medians by load, and the geometric mean of the generations' ratios with its 95 % interval.

    ``CPUs of others`` is what processes took that have nothing to do with it: figures taken beside them say little.
    """
    found = []
    for load in dict.fromkeys(each["load"] for each in generations):
        own = [each for each in generations if each["load"] == load]
        rates = {
            name: round(statistics.median(turn[name] for each in own for turn in each["rates"]), 1)
            for name in ("plain", "trial")
        }
        ratio = ratio_of([log_ratio(each["rates"]) for each in own])
        bounds = {"trial/plain": round(ratio.value, 3), "low": round(ratio.low, 3), "high": round(ratio.high, 3)}
        others = statistics.median(each["others"] for each in own)
        found.append({"load": load, "CPUs of others": others, **rates, **bounds, "generations": len(own)})
    return found
