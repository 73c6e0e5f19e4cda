"""Do trials of a second rank settings as runs of a minute do?"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.knobs.settings import Settings
from autotune.probes.inventory import probe
from autotune.stats.outcome import Outcome
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.judge import judge
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import recognise
from autotune.tuning.host_runner import open_runner
from benchmarks import stamp
from benchmarks.grid import file
from benchmarks.grid.file import Grid, Recorded, rate
from benchmarks.honesty import record
from benchmarks.honesty.ranks import spearman, spread

SHORT_TRIALS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("task", type=Path)
    parser.add_argument("--settings", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0, help="measured of each long run")
    parser.add_argument("--grid", type=Path, help="default: benchmarks/grids/<task>.jsonl")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/honesty-ranking-<task>.json")


def main(arguments: argparse.Namespace) -> None:
    """Measure what the file does not hold yet, then print what all of it says."""
    grid = file.load(arguments.grid or file.FOLDER / f"{arguments.task.stem}.jsonl")
    path = arguments.out or stamp.FOLDER / f"honesty-ranking-{arguments.task.stem}.json"
    data = recorded(arguments.task, path, grid, chosen(grid, arguments.settings), arguments.seconds)
    data["answer"] = answer(data["runs"], grid)
    record.save(path, data)
    print("\n".join(f"{name}: {value}" for name, value in data["answer"].items()))


def chosen(grid: Grid, count: int) -> list[Settings]:
    """Settings spread evenly over the ranks of the grid's rates, from its slowest to its best."""
    ordered = sorted((settings for settings, own in grid.rates.items() if own > 0), key=grid.rates.__getitem__)
    return [ordered[position] for position in spread(count, len(ordered))]


def recorded(task: Path, path: Path, grid: Grid, settings: list[Settings], seconds: float) -> dict[str, Any]:
    """Short trials of each of ``settings``, as the tuner's, and one long run; in random order, kept one by one."""
    inventory, baseline = probe(), grid.header.baseline
    fresh = {**stamp.stamp(inventory, record.PACKAGES), "task": task.stem, "baseline": baseline.as_dict(), "runs": []}
    data = record.opened(path, fresh)
    with open_runner(recognise(task), inventory, 0, 3600.0) as runner:
        bench = TrialBench(runner, baseline)
        bench.measure(baseline, 0.0, math.inf)
        long = TrialSpec(settings=baseline, min_seconds=seconds, max_seconds=seconds, target_error=0.0)
        short = [(number, each) for number in range(SHORT_TRIALS) for each in settings]
        for what, jobs in (("short", short), ("long", [(0, each) for each in settings])):
            for number, each in random.Random(0).sample(jobs, len(jobs)):
                key = {"what": what, "number": number, "seconds": seconds if what == "long" else None}
                if any(_same(run, key, each, grid) for run in data["runs"]):
                    continue
                spec = replace(long, settings=each) if what == "long" else TrialSpec(settings=each)
                outcome = judge(each, runner.run(spec, bench.timeouts))
                data["runs"].append(key | _encoded(each, outcome, grid))
                record.save(path, data)
                print(what, f"{rate(outcome):.6g}", outcome.reason, flush=True)
    return data


def _same(run: dict[str, Any], key: dict[str, Any], settings: Settings, grid: Grid) -> bool:
    changed = grid.header.baseline.but(**run["settings"])
    return changed == settings and all(run[name] == value for name, value in key.items())


def _encoded(settings: Settings, outcome: Outcome, grid: Grid) -> dict[str, Any]:
    """As a grid's line, less what only grids have."""
    line = file.encode(Recorded(0, 0.0, settings, outcome), grid.header.baseline)
    return {name: value for name, value in line.items() if name not in ("round", "at")}


def answer(runs: list[dict[str, Any]], grid: Grid) -> dict[str, Any]:
    """How well the order of short trials is that of the long runs, for one trial each and for the grid's rates."""
    settings, slow = [], []
    by_number: dict[int, dict[Settings, float]] = {}
    for run in runs:
        trial = file.decode(run | {"round": 0, "at": 0.0}, grid.header.baseline)
        if run["what"] == "long":
            settings.append(trial.settings)
            slow.append(rate(trial.outcome))
        else:
            by_number.setdefault(run["number"], {})[trial.settings] = rate(trial.outcome)
    singles = [[own.get(each, 0.0) for each in settings] for own in by_number.values()]
    found = [agreement(short, slow) for short in singles]
    return {
        "settings": len(settings),
        "one short trial each": [round(correlation, 3) for correlation, _ in found],
        "its best, of the long runs' best": [round(share, 4) for _, share in found],
        "off by (median)": round(statistics.median(_errors(singles, slow)), 4),
        "grid": [round(figure, 4) for figure in agreement([grid.rates[each] for each in settings], slow)],
    }


def agreement(short: list[float], slow: list[float]) -> tuple[float, float]:
    """Rank correlation, and how fast what is best by short trials is in a long run, relative to the best one there."""
    best = max(range(len(short)), key=short.__getitem__)
    return spearman(short, slow), slow[best] / max(slow)


def _errors(singles: list[list[float]], slow: list[float]) -> list[float]:
    """Relative difference of each short trial from the long run, both over their own means: the machine drifts."""
    found = []
    for short in singles:
        logs = [math.log(a / b) for a, b in zip(short, slow, strict=True) if a > 0 and b > 0]
        found += [abs(math.expm1(log - statistics.mean(logs))) for log in logs]
    return found
