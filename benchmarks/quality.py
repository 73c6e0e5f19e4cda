"""How near a real tuning run comes to the best of the grid, measured side by side.

    python -m benchmarks.quality examples/tabular_mlp.py [--budget 60] [--generations 6] [--profile found.yaml]

Tunes the task through the command line, from the shell to the profile, then lets the user's own settings, what each
level recommends, and the grid's best of each level take turns in fresh processes: the grid's own rates are noisy, and
their maximum is lucky. Prints ratios and writes ``benchmarks/results/quality-<task>.json``.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.knobs.settings import Settings
from autotune.probes.inventory import probe
from autotune.profiles import file as profiles
from autotune.stats.decide import BASELINE
from autotune.stats.proof import Round, compare
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import recognise
from autotune.tuning.host_runner import open_runner
from benchmarks import stamp
from benchmarks.grid import file

ROUNDS, BLOCK_SECONDS = 5, 0.25


def main() -> None:
    """Measure one task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", type=Path)
    parser.add_argument("--budget", type=float, help="seconds; by default what the tuner gives itself")
    parser.add_argument("--generations", type=int, default=6)
    parser.add_argument("--profile", type=Path, help="of a run that is over; nothing is tuned then")
    arguments = parser.parse_args()
    grid = file.load(file.FOLDER / f"{arguments.task.stem}.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.profile or Path(folder) / "found.yaml"
        seconds = 0.0 if arguments.profile else tune(arguments.task, path, arguments.budget)
        profile = profiles.read(path)
    contenders = {BASELINE: grid.header.baseline}
    for level, result in profile.levels.items():
        contenders |= {f"{level} found": result.settings, f"{level} grid": grid.optimum(level)[0]}
    rounds = side_by_side(arguments.task, contenders, arguments.generations)
    rows = [row(level, rounds) for level in profile.levels]
    for each in rows:
        print("  ".join(f"{name} {value}" for name, value in each.items()))
    claims = {level: result.speedup.as_dict() for level, result in profile.levels.items()}
    stamp.write(
        f"quality-{arguments.task.stem}",
        {
            "shell_to_profile_s": round(seconds, 1),
            "trials": profile.evidence.trials,
            "grid_s": round(grid.seconds),
            "levels": rows,
            "claims": claims,
            "settings": {name: settings.as_dict() for name, settings in contenders.items()},
            "rounds": [[turn.generation, turn.rates] for turn in rounds],
        },
    )


def tune(task: Path, profile: Path, budget: float | None, *options: str) -> float:
    """A run as a user starts it; seconds from the shell to the profile."""
    started = time.monotonic()
    command = [sys.executable, "tune.py", str(task), "--profile", str(profile)]
    command += [*options, *([] if budget is None else ["--budget", f"{budget:g}s"])]
    subprocess.run(command, check=True)
    return time.monotonic() - started


def side_by_side(task: Path, contenders: Mapping[str, Settings], generations: int) -> list[Round]:
    """Rounds of all ``contenders``; settings that have several names run once."""
    names = {settings: name for name, settings in reversed(contenders.items())}
    rounds = []
    with open_runner(recognise(task), probe(), 0, 3600.0) as runner:
        bench = TrialBench(runner, contenders[BASELINE])
        bench.measure(bench.baseline, 0.0, math.inf)
        for generation in range(generations):
            with bench.contest({name: settings for settings, name in names.items()}, math.inf) as contest:
                for _ in range(ROUNDS):
                    rates = contest.round(BLOCK_SECONDS)
                    everyone = {name: rates.get(names[settings], 0.0) for name, settings in contenders.items()}
                    rounds.append(Round(generation, everyone))
    return rounds


def row(level: str, rounds: list[Round]) -> dict[str, Any]:
    """One level: found and grid's best against the baseline, and the one against the other."""
    found, best = compare(rounds, f"{level} found", BASELINE), compare(rounds, f"{level} grid", BASELINE)
    ratio = compare(rounds, f"{level} found", f"{level} grid")
    return {
        "level": level,
        "found": round(found.value, 3),
        "grid": round(best.value, 3),
        "quality": round(ratio.value, 3),
        "low": round(ratio.low, 3),
        "high": round(ratio.high, 3),
    }


if __name__ == "__main__":
    main()
