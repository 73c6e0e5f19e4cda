"""Is the baseline that a trial measures what plain training makes beside the same neighbour, started from one shell?"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.knobs.baseline import baseline_settings
from autotune.knobs.settings import Settings
from autotune.probes.inventory import probe
from autotune.stats.student import student_quantile
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.running_trial import RunningTrial, Timeouts
from autotune.trial.target import recognise
from autotune.tuning.host_neighbours import Neighbours
from autotune.tuning.host_runner import open_runner
from benchmarks import stamp
from benchmarks.honesty import plain, record
from benchmarks.honesty.load import NICED, NONE, neighbour
from benchmarks.honesty.proofs import table
from benchmarks.rivals.measuring import environment

LOADS = (NONE, NICED, "steady")
PATIENCE = Timeouts(starting=120.0, stepping=120.0)
"""Two threads beside an equal neighbour wait for each other for long."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("task", type=Path)
    parser.add_argument("--generations", type=int, default=4, help="of each load: new processes")
    parser.add_argument("--rounds", type=int, default=12, help="of each generation: a block of each, in random order")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a block")
    parser.add_argument("--threads", type=int, help="default: the user's")
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/honesty-neighbours-<task>.json")


def main(arguments: argparse.Namespace) -> None:
    """Record, then print a table."""
    path = arguments.out or stamp.FOLDER / f"honesty-neighbours-{arguments.task.stem}.json"
    task, inventory = arguments.task.resolve(), probe()
    with open_runner(recognise(task), inventory, 0, 3600.0) as runner:
        settings = baseline_settings(runner.describe(), inventory)
        settings = settings.but(threads=arguments.threads or settings.threads)
        fresh = stamp.stamp(inventory, record.PACKAGES)
        data = {**fresh, "task": task.stem, "baseline": settings.as_dict(), "generations": []}
        dice = random.Random(0)
        for number in range(arguments.generations):
            for load in arguments.loads.split(","):
                others = Neighbours()
                with neighbour(load), training(task, settings) as process, resident(runner, settings) as trial:
                    turns = [turn(runner, process, trial, arguments.seconds, dice) for _ in range(arguments.rounds)]
                    foreign = round(others.load(settings.threads).taken, 2)
                data["generations"].append({"load": load, "others": foreign, "rates": turns})
                record.save(path, data)
                print(number, load, round(ratio(turns), 3), f"others {foreign}", flush=True)
    data["rows"] = rows(data["generations"])
    record.save(path, data)
    print(table(data["rows"]))


@contextlib.contextmanager
def training(task: Path, settings: Settings) -> Iterator[subprocess.Popen[str]]:
    """Plain training in this shell's session, warm; it sleeps until it is asked."""
    command = [sys.executable, plain.__file__, str(task), json.dumps(settings.as_dict())]
    env = environment(settings.as_dict())
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=os.setpgrp
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "warm\n":
                raise SystemExit(f"plain training ended at once, with exit code {process.wait()}")
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def resident(runner: Runner, settings: Settings) -> Iterator[RunningTrial]:
    """A trial, warm and paused."""
    trial = runner.start(TrialSpec(settings=settings, resident=True), PATIENCE)
    try:
        runner.ready(trial)
        yield trial
    finally:
        runner.stop(trial)


def turn(
    runner: Runner, process: subprocess.Popen[str], trial: RunningTrial, seconds: float, dice: random.Random
) -> dict[str, float]:
    """Items per second of a block of each, in random order."""

    def plain_rate() -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    def trial_rate() -> float:
        block = runner.block(trial, seconds)
        if block is None:
            raise SystemExit(f"the trial ended: {runner.end(trial).log}")
        return block.rate

    measures = {"plain": plain_rate, "trial": trial_rate}
    return {name: round(measures[name](), 1) for name in dice.sample(sorted(measures), len(measures))}


def ratio(turns: list[dict[str, float]]) -> float:
    """Of trial to plain training: the median over the rounds of a generation."""
    return math.exp(statistics.median(math.log(each["trial"] / each["plain"]) for each in turns))


def rows(generations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By load: medians, and the geometric mean of the generations' ratios with its 95 % interval.

    ``CPUs of others`` is what processes took that have nothing to do with it: figures taken beside them say little.
    """
    found = []
    for load in dict.fromkeys(each["load"] for each in generations):
        others = statistics.median(each["others"] for each in generations if each["load"] == load)
        own = [each["rates"] for each in generations if each["load"] == load]
        medians = {
            name: round(statistics.median(turn[name] for turns in own for turn in turns), 1)
            for name in ("plain", "trial")
        }
        low, mean, high = interval([math.log(ratio(turns)) for turns in own])
        interval_of = {"trial/plain": mean, "low": low, "high": high, "generations": len(own)}
        found.append({"load": load, "CPUs of others": others, **medians, **interval_of})
    return found


def interval(logs: list[float]) -> tuple[float, float, float]:
    """Student's 95 % interval around the mean of ``logs``, as ratios: low, mean, high; unbounded below two."""
    mean, count = statistics.mean(logs), len(logs)
    if count < 2:
        return 0.0, round(math.exp(mean), 3), math.inf
    half = student_quantile(0.975, count - 1) * statistics.stdev(logs) / math.sqrt(count)
    return round(math.exp(mean - half), 3), round(math.exp(mean), 3), round(math.exp(mean + half), 3)
