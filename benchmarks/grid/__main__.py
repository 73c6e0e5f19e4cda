"""Measure every feasible setting of a task or script, several interleaved rounds, and keep the raw blocks.

    python -m benchmarks.grid [--rounds 2] examples/tabular_mlp.py
    python -m benchmarks.grid --rounds 1 --finals 2 benchmarks/scripts/unet.py [ITS ARGUMENTS]

Options stand before the target: what follows a script belongs to it.

Writes ``benchmarks/grids/<task>.jsonl`` (of scripts, in ``scripts/``) and goes on with it where it was interrupted.
Full rounds measure everything in random order, the baseline every tenth trial; then contests measure what may be a
level's optimum side by side.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable
from pathlib import Path

from autotune.knobs.settings import Settings
from autotune.knobs.stated import baseline_settings
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.stats.outcome import Outcome
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.judge import check_losses, judge
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import Script, recognise_target
from autotune.tuning.runner import open_runner
from benchmarks import stamp
from benchmarks.grid import file, plan
from benchmarks.grid.file import Grid, Header, Recorded, Turns

PACKAGES = ("torch", "numpy", "torch-autotune")
MEASURED_SECONDS = 0.5
"""Blocks of each trial, in all."""
WARMUP_SECONDS = 1.0
ROUNDS, BLOCK_SECONDS = 4, 0.25
"""Of each contest."""


def main() -> None:
    """Record one grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of a script")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--finals", type=int, default=len(plan.FIELD))
    parser.add_argument("--out", type=Path, help="default: benchmarks/grids/<task>.jsonl")
    arguments = parser.parse_args()
    target = recognise_target(str(arguments.target), arguments.arguments)
    is_script = isinstance(target, Script)
    path = arguments.out or file.FOLDER / ("scripts" if is_script else "") / f"{target.path.stem}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    inventory = probe()
    with open_runner(target, inventory, 0, 3600.0) as runner:
        if not path.exists():
            path.write_text(_line(_header(runner, inventory, is_script).as_dict()), "utf-8")
        recorder = Recorder(runner, path)
        recorder.rounds(range(arguments.rounds), plan.everything(recorder.grid.spaces))
        for number, level in itertools.product(range(arguments.finals), recorder.grid.spaces):
            recorder.contest(level, number)
    print(file.summary(file.load(path)))


def _header(runner: Runner, inventory: Inventory, is_script: bool) -> Header:
    facts = runner.describe()
    baseline = baseline_settings(facts, inventory)
    held = plan.held_of_script(baseline) if is_script else plan.held_of(facts.name)
    return Header(
        **stamp.stamp(inventory, PACKAGES),
        inventory=inventory,
        task=facts,
        baseline=baseline,
        held={name: list(values) for name, values in held.items()},
    )


class Recorder:
    """Measures what a grid's file does not hold yet, and appends it."""

    def __init__(self, runner: Runner, path: Path) -> None:
        self.runner, self.path = runner, path
        self.grid: Grid = file.load(path)
        self.baseline = self.grid.header.baseline
        self.bench = TrialBench(runner, self.baseline)
        self.elapsed = max((trial.at for trial in self.grid.trials), default=0.0)
        self.started = time.monotonic()
        self.bench.remember(self._trial(self.baseline))

    def rounds(self, numbers: Iterable[int], settings: tuple[Settings, ...]) -> None:
        """Measure ``settings`` once in each round, less what the file holds already."""
        for number in numbers:
            done = [trial.settings for trial in self.grid.trials if trial.round == number]
            for position, each in enumerate(plan.full_round(settings, number)):
                if each in done:
                    done.remove(each)
                    continue
                at = self.elapsed + time.monotonic() - self.started
                trial = Recorded(number, at, each, self.measure(each))
                self._append(file.encode(trial, self.baseline))
                print(
                    f"round {number} trial {position}: {file.rate(trial.outcome):.6g}", trial.outcome.reason, flush=True
                )

    def contest(self, level: str, number: int) -> None:
        """Measure a level's best side by side, unless the file holds this contest already."""
        grid = file.load(self.path)
        if any((turns.level, turns.number) == (level, number) for turns in grid.turns):
            return
        chosen = plan.contenders(grid.spaces[level], grid.rates, plan.FIELD[number % len(plan.FIELD)])
        same = (turns.rates for turns in grid.turns if (turns.number, turns.settings) == (number, chosen))
        turns = Turns(level, number, chosen, next(same, None) or self.turns(chosen))
        self._append(file.encode_turns(turns, self.baseline))
        print(f"contest {number} {level}: {len(chosen)} contenders", flush=True)

    def turns(self, settings: tuple[Settings, ...]) -> tuple[tuple[float, ...], ...]:
        """Items per second of fresh residents, round by round."""
        named = {str(position): each for position, each in enumerate(settings)}
        with self.bench.start_replicate(named) as replicate:
            rows = [replicate.round(BLOCK_SECONDS) for _ in range(ROUNDS)]
        return tuple(tuple(row.get(name, 0.0) for name in named) for row in rows)

    def measure(self, settings: Settings) -> Outcome:
        """One trial of fixed length, judged by how it ended and by its losses."""
        same = settings.global_batch == self.baseline.global_batch
        return check_losses(self._trial(settings), settings, self.bench.reference, same_batch=same)

    def _append(self, data: object) -> None:
        with self.path.open("a", encoding="utf-8") as output:
            output.write(_line(data))

    def _trial(self, settings: Settings) -> Outcome:
        spec = TrialSpec(
            settings=settings,
            min_seconds=MEASURED_SECONDS,
            max_seconds=MEASURED_SECONDS,
            target_error=0.0,
            warmup_seconds=WARMUP_SECONDS,
        )
        return judge(self.runner.run(spec, self.bench.timeouts))


def _line(data: object) -> str:
    return json.dumps(data, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    main()
