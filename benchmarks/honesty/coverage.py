"""Simulated proofs of known ratios: how often the interval holds the truth, and a gain is claimed that is none."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from autotune.knobs.level import LOWEST
from autotune.stats.proof import BASELINE
from autotune.tuning.schedule import MOST_ROUNDS
from benchmarks import stamp
from benchmarks.honesty import aa
from benchmarks.honesty.noise import MODELS, Noise, fitted, simulated
from benchmarks.honesty.proofs import prove, summary

LOW = LOWEST
RATIOS = (1.0, 1.03, 1.10, 1.30)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this experiment."""
    parser.add_argument("--draws", type=int, default=4000, help="proofs of each noise and ratio")
    parser.add_argument("--replicates", default="24,10,4", help="after which the budget ends a proof")
    parser.add_argument("--worlds", default="", help="names that hold this")
    parser.add_argument("--ratios", default=",".join(map(str, RATIOS)))
    parser.add_argument("--out", type=Path, help="as JSON too")


def main(arguments: argparse.Namespace) -> None:
    """Print a table; write it as JSON if asked."""
    ratios = [float(ratio) for ratio in arguments.ratios.split(",")]
    noises = MODELS | dict(as_recorded(stamp.FOLDER))
    ends = [int(count) for count in arguments.replicates.split(",")]
    rows = []
    for name, noise in noises.items():
        if arguments.worlds in name:
            rows += [row(name, noise, ratio, end, arguments.draws) for ratio in ratios for end in ends]
            print(name, flush=True, file=sys.stderr)
            if arguments.out:
                figures = {name: vars(noise) for name, noise in noises.items()}
                stamp.save(arguments.out, {"noises": figures, "rows": rows})
    print(stamp.table(rows))


def row(name: str, noise: Noise, ratio: float, end: int, draws: int) -> dict[str, Any]:
    """Return figures of ``draws`` proofs, of at most ``end`` generations; one contender is ``ratio`` times as fast."""
    rng = np.random.default_rng(0)
    rates = {BASELINE: 1.0, LOW: ratio}
    roles = {name: name for name in rates}
    answers = [prove(simulated(noise, rates, MOST_ROUNDS, rng, end), roles) for _ in range(draws)]
    return {"noise": name, "ratio": ratio, "budget_for": end, **summary(answers, *noise.truth(ratio))}


def as_recorded(folder: Path) -> Iterator[tuple[str, Noise]]:
    """Yield the noise of every A/A recording, by task and load."""
    for path in sorted(folder.glob("honesty-aa-*.json")):
        data = json.loads(path.read_text("utf-8"))
        for load, generations in aa.by_load(data).items():
            if noise := fitted(generations):
                yield f"as {path.stem.removeprefix('honesty-aa-')} beside {load}", noise
