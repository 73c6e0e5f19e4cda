"""Compare search strategies, hold the whole tuner's claims against the truth, and see how much sooner it is as good as
TPE with a process per trial, in simulated time.

    python -m benchmarks.replay [search|tune|sooner] [--seeds 100] [--worlds tabular_mlp,big] [--keep]

Worlds are the recorded grids under ``benchmarks/grids`` and modelled machines of 2 sockets x 64 cores x 8
GPUs: ``big`` behaves as textbooks say, ``strange`` against the search's own expectations.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.knobs.level import LEVELS
from benchmarks import stamp
from benchmarks.grid.file import everywhere
from benchmarks.replay.pipeline import STARTUP_SECONDS, Tuned, tune
from benchmarks.replay.strategies import SAMPLERS, Run, after, search, within
from benchmarks.replay.world import GridWorld, ModelWorld, World
from tests.doubles.simulation import machines

MARKS = (5.0, 10.0, 20.0, 30.0, 60.0)
"""Simulated seconds of searching, for recorded grids."""
TRIALS = (10, 20, 30, 40)
"""Trials, for modelled machines."""
GOOD = 0.98
FRESH_SECONDS = 3.1
"""What a trial costs more where each starts a Python of its own: ``benchmarks.trial_start``."""
LONG = 600.0
"""Seconds for TPE with a process per trial to become as good."""
SLOW = {"gp": 10}
"""Seeds at most: proposals of these take long in real time."""


def main() -> None:
    """Print a table; write it as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "tune", "sooner"), nargs="?", default="search")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--worlds", help="default: all")
    parser.add_argument("--strategies", default=",".join(SAMPLERS))
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--budget", type=float, help="seconds of a whole run (tune); default: the tuner's own")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/replay-<what>.json")
    arguments = parser.parse_args()
    worlds = [world for world in every_world() if not arguments.worlds or world.name in arguments.worlds.split(",")]
    levels = arguments.levels.split(",")
    rows: list[dict[str, Any]] = []
    for world in worlds:
        if arguments.what == "tune":
            rows += tuned_rows(world, [tune(world, seed, arguments.budget) for seed in range(arguments.seeds)])
        elif arguments.what == "sooner":
            rows += sooner_rows(world, levels, arguments.seeds)
        else:
            rows += search_rows(world, levels, arguments.strategies.split(","), arguments.seeds)
    if arguments.keep:
        stamp.write(f"replay-{arguments.what}", {"arguments": vars(arguments), "rows": rows})


def every_world() -> list[World]:
    """All recorded grids, then the modelled machines."""
    recorded: list[World] = [GridWorld(name, grid) for name, grid in everywhere().items()]
    return [*recorded, ModelWorld(machines.big(36_000.0)), ModelWorld(machines.strange())]


def search_rows(world: World, levels: Sequence[str], strategies: Sequence[str], seeds: int) -> list[dict[str, Any]]:
    """One row per level and strategy; printed as they come."""
    rows = []
    modelled = isinstance(world, ModelWorld)
    for level in levels:
        for name in strategies:
            stop = after(TRIALS[-1]) if modelled else within(MARKS[-1])
            runs = [search(name, world, level, seed, stop) for seed in range(min(seeds, SLOW.get(name, seeds)))]
            rows.append({"world": world.name, "level": level, "strategy": name, **_qualities(runs, modelled, name)})
            print(_text(rows[-1]), flush=True)
    return rows


def sooner_rows(world: World, levels: Sequence[str], seeds: int) -> list[dict[str, Any]]:
    """One row per level: seconds until `GOOD`, ours from the shell on, against TPE with a fresh process per trial."""
    rows = []
    for level in levels:
        if world.truth(_own(world)) >= GOOD * world.optimum(level):
            continue  # nothing to find
        ours = [search("ours", world, level, seed, within(LONG)) for seed in range(seeds)]
        theirs = [search("tpe", world, level, seed, within(LONG), extra=FRESH_SECONDS) for seed in range(seeds)]
        good = [STARTUP_SECONDS + _until_good(run, True) for run in ours], [_until_good(run, False) for run in theirs]
        ahead, behind = (statistics.median(seconds) for seconds in good)
        reached = [sum(map(math.isfinite, seconds)) / seeds for seconds in good]
        row = {"world": world.name, "level": level, "seeds": seeds, "ours": round(ahead, 1), "tpe": round(behind, 1)}
        row |= {"times": round(behind / ahead, 1), "ours_reached": reached[0], "tpe_reached": reached[1]}
        rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return rows


def _qualities(runs: Sequence[Run], modelled: bool, name: str) -> dict[str, Any]:
    marks = TRIALS if modelled else MARKS
    ours = name == "ours"
    found = {}
    for mark in marks:
        trials = [mark if modelled else sum(at <= mark for at in run.clock) for run in runs]
        qualities = [run.quality(int(count), ours) for run, count in zip(runs, trials, strict=True)]
        unit = "trials" if modelled else "s"
        found[f"{mark:g} {unit}"] = [round(statistics.median(qualities), 4), round(np.quantile(qualities, 0.1), 4)]
    return {
        "seeds": len(runs),
        "quality": found,
        "seconds_to_good": round(statistics.median(_until_good(run, ours) for run in runs), 1),
        "trials_to_good": statistics.median(_trials_until_good(run, ours) for run in runs),
        "trials": statistics.median(len(run.history) for run in runs),
        "slowest_proposal_ms": round(1e3 * max(run.slowest for run in runs), 1),
    }


def _until_good(run: Run, ours: bool) -> float:
    """Seconds until the recommendation is as good as `GOOD`; infinite where it never is."""
    trials = _trials_until_good(run, ours)
    return run.clock[int(trials) - 1] if math.isfinite(trials) else math.inf


def _trials_until_good(run: Run, ours: bool) -> float:
    counts = (count for count in range(1, len(run.clock) + 1) if run.quality(count, ours) >= GOOD)
    return next(counts, math.inf)


def _text(row: dict[str, Any]) -> str:
    cells = "  ".join(f"{mark}: {middle:.3f} ({low:.3f})" for mark, (middle, low) in row["quality"].items())
    good = f"{GOOD:g} after {row['seconds_to_good']:.0f} s and {row['trials_to_good']:g} trials"
    return f"{row['world']:17} {row['level']:5}{row['strategy']:11} {cells}  {good}, {row['trials']:.0f} trials"


def tuned_rows(world: World, runs: Sequence[Tuned]) -> list[dict[str, Any]]:
    """One row per level of whole runs: quality, proofs, false gains, coverage, regressions."""
    rows = []
    for position, level in enumerate(LEVELS):
        claims = [run.claims[position] for run in runs]
        intervals = [claim for claim in claims if claim.interval and claim.interval.low > 0]
        covered = [c.interval.low <= c.candidate_ratio <= c.interval.high for c in intervals if c.interval]
        row = {
            "world": world.name,
            "level": level,
            "seeds": len(runs),
            "seconds": round(statistics.median(run.seconds for run in runs), 1),
            "trials": statistics.median(run.trials for run in runs),
            "quality": round(statistics.median(c.quality for c in claims), 4),
            "quality_10th": round(float(np.quantile([c.quality for c in claims], 0.1)), 4),
            "possible": round(world.optimum(level) / world.truth(_own(world)), 3),
            "proven": round(statistics.mean(c.proven for c in claims), 3),
            "false_gains": sum(c.proven and c.ratio <= 1.0 for c in claims),
            "covered": round(statistics.mean(covered), 3) if covered else None,
            "regressions": sum(c.ratio < 0.99 for c in claims),
        }
        rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return rows


def _own(world: World) -> Any:
    return world.spaces["safe"].context.baseline


if __name__ == "__main__":
    main()
