"""Whole tuning runs in simulated time where the user's settings are the best there is: every claim is a false one."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna

from autotune.knobs.knob import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from benchmarks.grid.file import FOLDER, Grid, everywhere
from benchmarks.grid.plan import spaces
from benchmarks.honesty import record
from benchmarks.honesty.proofs import table
from benchmarks.replay.pipeline import Tuned, tune
from benchmarks.replay.world import GridWorld, ModelWorld, World
from benchmarks.simulation import machines

NOISES = (0.02, 0.10)
"""Process luck on modelled machines."""
REGRESSION = 0.99
"""Slower than the user's settings by more than one percent."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--worlds", help="names that begin with one of these, by commas; default: all")
    parser.add_argument("--grids", type=Path, default=FOLDER)
    parser.add_argument("--budget", type=float, default=75.0, help="simulated seconds of a whole run")
    parser.add_argument("--out", type=Path, help="as JSON too")


def main(arguments: argparse.Namespace) -> None:
    """Print a table; write it as JSON where asked."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    wanted = tuple(arguments.worlds.split(",")) if arguments.worlds else ("",)
    found = []
    for world in worlds(arguments.grids):
        if world.name.startswith(wanted):
            runs = [tune(world, seed, arguments.budget) for seed in range(arguments.seeds)]
            found += rows(world, runs)
            print(world.name, flush=True)
    print(table(found))
    if arguments.out:
        record.save(arguments.out, {"budget": arguments.budget, "rows": found})


def worlds(grids: Path) -> Iterator[World]:
    """Modelled machines, then every recorded grid with each level's best as the user's settings."""
    for machine in (machines.default_best(), machines.flat()):
        for noise in NOISES:
            world = ModelWorld(machine, noise=noise)
            world.name = f"{machine.name}, luck {noise:.0%}"
            yield world
    for name, grid in everywhere(grids).items():
        for level in LEVELS:
            yield RebasedWorld(f"{name}, best of {level}", grid, level)


@dataclass(frozen=True)
class Recorded(Space):
    """A space that holds only what was recorded."""

    recorded: frozenset[Settings] = frozenset()

    def why_not(self, settings: Settings) -> str | None:
        """See `Space`."""
        return super().why_not(settings) or (None if settings in self.recorded else "not recorded")


class RebasedWorld(GridWorld):
    """A recorded grid whose user already runs the best settings of ``level``.

    Levels above may still hold gains; those are no false ones. Noise and drift are those of the grid's own baseline.
    """

    def __init__(self, name: str, grid: Grid, level: str) -> None:
        super().__init__(name, grid)
        known, header = frozenset(grid.by_settings), grid.header
        best = max((settings for settings in known if settings in grid.spaces[level]), key=self.truth)
        factors = sorted({settings.global_batch / best.global_batch for settings in known})
        context = replace(header.context, baseline=best)
        found = spaces(context, {**header.held, "global_batch": factors})
        self.spaces = {name: Recorded(**vars(space), recorded=known) for name, space in found.items()}

    def optimum(self, level: str) -> float:
        """See `World`."""
        return max(self.truth(settings) for settings in self.grid.by_settings if settings in self.spaces[level])


def rows(world: World, runs: Sequence[Tuned]) -> list[dict[str, Any]]:
    """One row per level: gains claimed, those that are none, regressions, coverage."""
    found = []
    own = world.truth(next(iter(world.spaces.values())).context.baseline)
    for position, level in enumerate(LEVELS):
        claims = [run.claims[position] for run in runs]
        stated = [(claim.interval, claim.contender_ratio) for claim in claims if claim.interval]
        covered = [interval.low <= ratio <= interval.high for interval, ratio in stated]
        found.append(
            {
                "world": world.name,
                "level": level,
                "runs": len(runs),
                "possible": round(world.optimum(level) / own, 3),
                "claims": sum(claim.proven for claim in claims),
                "false": sum(claim.proven and claim.ratio <= 1.0 for claim in claims),
                "regressions": sum(claim.ratio < REGRESSION for claim in claims),
                "intervals": len(covered),
                "coverage": round(statistics.mean(covered), 3) if covered else None,
            }
        )
    return found
