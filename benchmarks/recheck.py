"""Measure a profile's claims again in fresh processes with plain PyTorch: nothing of the project runs in them.

    python -m benchmarks.recheck PROFILE.yaml TASK.py [--rounds 6] [--seconds 2] [--grid] [--tpe 60]

Each round starts fresh processes of the user's settings and of every level that differs; they are warmed up and take
blocks in turns. ``--grid`` adds the best of each level in the recorded grid of the task (`benchmarks.grid`), ``--tpe``
what Optuna's TPE finds in so many seconds with fresh processes for each trial, at the level ``amp``.

Printed are the claim and the ratio that was measured: geometric mean over the rounds with Student's 95 % interval.
Written with all rates to ``benchmarks/results/recheck-<task>.json``.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from autotune.knobs.knob import progress
from benchmarks import stamp
from benchmarks.grid import file
from benchmarks.plain import tpe
from benchmarks.plain.side_by_side import Contender, rounds
from benchmarks.ratios import paired

BASELINE = "baseline"
BLOCKS = 3
"""Of each contender in a round; their geometric mean counts."""

Settings = Mapping[str, Any]


def main() -> None:
    """Print one line for each level and for what was added."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=Path)
    parser.add_argument("task", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a block")
    parser.add_argument("--grid", action="store_true", help="also the best of the recorded grid")
    parser.add_argument("--tpe", type=float, default=0.0, help="seconds that Optuna's TPE gets")
    arguments = parser.parse_args()
    profile = yaml.safe_load(arguments.profile.read_text("utf-8"))
    choices = profiled(profile)
    if arguments.grid:
        grid = file.load(file.FOLDER / f"{arguments.task.stem}.jsonl")
        choices |= {f"{level} grid": grid.optimum(level)[0].as_dict() for level in profile["levels"]}
    if arguments.tpe:
        found, trials = tpe.search(arguments.task, tpe.space_of(arguments.task, "amp"), arguments.tpe, 1.0, 0)
        choices[f"TPE, {trials} trials"] = found.as_dict()
    turns = measured(arguments.task, choices, arguments.rounds, arguments.seconds)
    lines = report(profile, choices, turns)
    print(*lines, sep="\n")
    path = stamp.write(f"recheck-{arguments.task.stem}", {"settings": choices, "rounds": turns, "report": lines})
    print(f"written: {path}", file=sys.stderr)


def profiled(profile: Mapping[str, Any]) -> dict[str, Settings]:
    """Return the user's settings and those of each level."""
    levels = {name: level["settings"] for name, level in profile["levels"].items()}
    return {BASELINE: profile["baseline"]["settings"], **levels}


def distinct(choices: Mapping[str, Settings]) -> dict[str, str]:
    """Return for each name the first one that has the same settings: they run once."""
    firsts: list[str] = []
    found = {}
    for name, settings in choices.items():
        same = next((first for first in firsts if choices[first] == settings), name)
        firsts += [same] if same == name else []
        found[name] = same
    return found


def measured(task: Path, choices: Mapping[str, Settings], count: int, seconds: float) -> list[dict[str, float]]:
    """Return items per second of every choice, one mapping for each of ``count`` starts."""
    same = distinct(choices)
    contenders = {name: Contender(task, choices[name]) for name in dict.fromkeys(same.values())}
    turns = []
    for number in range(count):
        blocks = [*rounds(contenders, BLOCKS, seconds, seed=number)]
        rates = {name: _mean([turn[name] for turn in blocks if name in turn]) for name in contenders}
        turns.append({name: rates[first] for name, first in same.items() if rates[first]})
        print(f"round {number + 1}", {name: round(rate, 1) for name, rate in turns[-1].items()}, file=sys.stderr)
    return turns


def _mean(rates: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, rates))) if rates else 0.0


def counted(
    turns: Sequence[Mapping[str, float]], choices: Mapping[str, Settings], profile: Mapping[str, Any]
) -> list[dict[str, float]]:
    """Return the rates as claims count them: samples of larger batches by their progress."""
    batches = {name: settings["processes"] * settings["batch_size"] for name, settings in choices.items()}
    scale = profile.get("evidence", {}).get("noise_scale")
    worth = {name: progress(batch / batches[BASELINE], scale) for name, batch in batches.items()}
    return [{name: rate * worth[name] for name, rate in turn.items()} for turn in turns]


def report(
    profile: Mapping[str, Any], choices: Mapping[str, Settings], turns: Sequence[Mapping[str, float]]
) -> list[str]:
    """Return a line for each choice: claim and measured ratio against the user's settings."""
    lines, turns = [], counted(turns, choices, profile)
    for name, settings in choices.items():
        if name == BASELINE:
            continue
        claim = profile["levels"].get(name, {}).get("speedup")
        claimed = "claimed {value:.2f}x ({low:.2f} to {high:.2f}), ".format(**claim) if claim else ""
        if settings == choices[BASELINE]:
            lines.append(f"{name}: the user's own settings")
        else:
            lines.append(f"{name}: {claimed}measured {paired(turns, name, BASELINE) or 'never: it failed'}")
    return lines


if __name__ == "__main__":
    main()
