"""The user's settings against themselves: real proof generations beside a neighbour, and the proofs they allow."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import LaunchError
from autotune.knobs.stated import baseline_settings
from autotune.probes.inventory import probe
from autotune.stats.outcome import Completed
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import recognise
from autotune.tuning.runner import open_runner
from autotune.tuning.schedule import BLOCK_SECONDS, MOST_ROUNDS, SLOW_STEP_SECONDS
from benchmarks import stamp
from benchmarks.honesty import draws
from benchmarks.honesty.proofs import Turn
from benchmarks.neighbour import LOADS, neighbour

COMPARISONS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this experiment."""
    parser.add_argument("task", type=Path)
    parser.add_argument("--replicates", type=int, default=30, help="of each load")
    parser.add_argument("--threads", type=int, help="default: the user's; beside a neighbour several wait for ages")
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--comparisons", type=int, default=COMPARISONS, help="of each load")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/honesty-aa-<task>.json")


def main(arguments: argparse.Namespace) -> None:
    """Record what the file does not hold yet, then print what all of it says."""
    path = arguments.out or stamp.FOLDER / f"honesty-aa-{arguments.task.stem}.json"
    loads = arguments.loads.split(",")
    unknown = sorted(set(loads) - set(LOADS))
    if unknown:
        raise SystemExit(f"--loads {unknown[0]}: no such load; loads are: {', '.join(LOADS)}")
    data = recorded(arguments.task, path, loads, arguments.replicates, arguments.threads)
    data["rows"] = draws.rows(by_load(data), arguments.comparisons)
    stamp.save(path, data)
    print(stamp.table(data["rows"]))


def recorded(task: Path, path: Path, loads: list[str], count: int, threads: int | None) -> dict[str, Any]:
    """Return everything recorded, at least ``count`` generations of each of ``loads``; each is written to ``path``."""
    inventory = probe()
    with open_runner(recognise(task), inventory, 0, 3600.0) as runner:
        baseline = baseline_settings(runner.describe(), inventory)
        baseline = baseline.but(threads=threads or baseline.threads)
        fresh = {
            **stamp.stamp(inventory),
            "task": task.stem,
            "baseline": baseline.as_dict(),
            "generations": [],
        }
        data = stamp.opened(path, fresh)
        bench = TrialBench(runner, baseline, seed=len(data["generations"]))
        rounds = turns(bench)
        for load in loads:
            missing = count - sum(row["load"] == load for row in data["generations"])
            for taken in generations(bench, load, missing, rounds):
                data["generations"].append({"load": load, "at": time.strftime("%H:%M:%S"), **encoded(taken)})
                stamp.save(path, data)
                print(load, *(f"{turn.rates.get('a', 0.0):.6g}" for turn in taken), flush=True)
    return data


def turns(bench: TrialBench) -> int:
    """Return the most rounds that the tuner's proof may ask of a generation, by the baseline's first trial.

    Raises:
        LaunchError: the task did not run.
    """
    outcome = bench.measure(bench.baseline, 0.0, math.inf)
    if not isinstance(outcome, Completed) or outcome.measurement is None:
        raise LaunchError(f"the task failed under its own settings: {outcome.reason}\n{outcome.detail}")
    blocks = outcome.measurement.blocks
    step = sum(block.seconds for block in blocks) / sum(block.steps for block in blocks)
    return 1 if step > SLOW_STEP_SECONDS else MOST_ROUNDS


def generations(bench: TrialBench, load: str, count: int, rounds: int) -> Iterator[list[Turn]]:
    """Yield items per second of contenders that all run the baseline's settings, beside a neighbour."""
    if count <= 0:
        return
    same = dict.fromkeys(draws.NAMES, bench.baseline)
    with neighbour(load, seed=bench.seed):
        for _ in range(count):
            with bench.start_replicate(same) as replicate:
                yield [Turn(replicate.round(BLOCK_SECONDS), replicate.neighbours) for _ in range(rounds)]


def encoded(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return a generation for the file: rates, and what neighbours took, round by round."""
    return {"rates": [turn.rates for turn in turns], "neighbours": [round(turn.neighbours, 2) for turn in turns]}


def decoded(row: dict[str, Any]) -> list[Turn]:
    """Return a generation from the file; recordings of before 2026-11-22 do not say what neighbours took."""
    return [Turn(*turn) for turn in zip(row["rates"], row.get("neighbours") or [0.0] * len(row["rates"]), strict=True)]


def by_load(data: dict[str, Any]) -> dict[str, list[list[Turn]]]:
    """Return the recording's generations by load, in order."""
    found: dict[str, list[list[Turn]]] = {}
    for row in data["generations"]:
        found.setdefault(row["load"], []).append(decoded(row))
    return found
