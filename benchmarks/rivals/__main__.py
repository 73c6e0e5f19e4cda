"""autotune against other ways to find settings, on the same tasks in one run.

    python -m benchmarks.rivals TASK [TASK...] [--budget 75] [--tpe-budget 750] [--rounds 6]

Each method searches alone, one after the other; what each recommends is then measured in turns by plain PyTorch code.
Writes one JSON file per task and prints a table. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from autotune.knobs.knob import LEVELS
from autotune.profiles.format import machine_type
from benchmarks import stamp
from benchmarks.rivals import batch_finders, contest, given, launcher_sweep, loadtune, optuna_tpe, ours
from benchmarks.rivals.history import Choice, Method, Rounds
from benchmarks.rivals.stage import Stage, open_stage

RIVALS: dict[str, Callable[[Stage, float], list[Method]]] = {
    "defaults": given.defaults,
    "lightning": batch_finders.lightning,
    "accelerate": batch_finders.accelerate,
    "loadtune": loadtune.methods,
    "sweep": launcher_sweep.methods,
    "tpe": optuna_tpe.methods,
}
PACKAGES = ("torch-autotune", "torch", "numpy", "optuna", "lightning", "accelerate", "loadtune")


def main() -> None:
    """All tasks, one after the other."""
    arguments = _parser().parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for task in arguments.tasks:
        compare(task, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path, nargs="+", metavar="TASK")
    parser.add_argument("--budget", type=float, default=75.0, help="seconds that every method gets")
    parser.add_argument("--tpe-budget", type=float, help="more for Optuna, to see when it is as good")
    parser.add_argument("--level", choices=LEVELS, default="amp", help="what the sweep and Optuna may change")
    parser.add_argument("--rivals", nargs="*", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--grid-best", type=Path, help="JSON: settings, or settings by level, of a recorded grid")
    parser.add_argument("--trial-seconds", type=float, default=2.0, help="measured per trial of the sweep and Optuna")
    parser.add_argument("--rounds", type=int, default=6, help="of the final measurement")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured per start in the final measurement")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "results")
    return parser


def compare(task: Path, arguments: argparse.Namespace) -> None:
    """One task: search, measure, write, print."""
    stage = open_stage(task, arguments.level, arguments.trial_seconds, arguments.seed)
    record = Record(stage, arguments)
    methods = record.keep(_searched("autotune", ours.methods, stage, arguments.budget))
    for name in arguments.rivals:
        budget = max(arguments.budget, arguments.tpe_budget or 0.0) if name == "tpe" else arguments.budget
        methods = record.keep(_searched(name, RIVALS[name], stage, budget))
    if arguments.grid_best:
        methods = record.keep(given.grid(stage, arguments.grid_best))
    current = Choice(stage.current)
    points = contest.recommended(methods, arguments.budget)
    choices = contest.distinct(current, points.values())
    print(f"measuring {len(choices)} settings in {arguments.rounds} rounds", file=sys.stderr)
    rounds: Rounds = []
    for turn in contest.measured(stage.task, choices, arguments.rounds, arguments.seconds, arguments.seed):
        rounds = record.measured(choices, turn)
    found = contest.rows(methods, current, arguments.budget, rounds)
    print(f"{stage.facts.name} on {record.data['machine']}, {arguments.budget:g} s each\n")
    print(contest.table(found, current), end="\n\n")
    ours_by_level = {method.level: method for method in methods if contest.is_ours(method)}
    searched = [method for method in methods if method.trials]
    conclusions = [contest.sooner(each, points[each], ours_by_level[each.level], rounds) for each in searched]
    print(*conclusions, "", sep="\n")
    record.conclude(found, conclusions)


def _searched(name: str, search: Callable[[Stage, float], list[Method]], stage: Stage, budget: float) -> list[Method]:
    print(f"{name}, up to {budget:g} s", file=sys.stderr)
    found = search(stage, budget)
    for method in found:
        print(f"  {method.name}: {method.timeline[-1].seconds:.1f} s, {method.note}", file=sys.stderr)
    return found


class Record:
    """The result file, written again after every step so that an interrupted run is not lost."""

    def __init__(self, stage: Stage, arguments: argparse.Namespace) -> None:
        now = datetime.now(timezone.utc)
        machine = machine_type(stage.inventory).key
        self.path = arguments.out / f"{stage.facts.name}-{machine}-{now:%Y%m%d-%H%M%S}.json"
        options = {name: value for name, value in vars(arguments).items() if isinstance(value, (int, float, str, list))}
        del options["tasks"]
        self.today = stage.current
        self.methods: list[Method] = []
        self.rounds: list[dict[Choice, float]] = []
        self.data: dict[str, Any] = {
            "format": "autotune.rivals/1",
            "task": stage.facts.name,
            **stamp.stamp(stage.inventory, PACKAGES),
            "date": f"{now:%Y-%m-%d}",
            "options": options,
            "today": self.today.as_dict(),
            "methods": [],
        }

    def keep(self, methods: list[Method]) -> list[Method]:
        """Add ``methods``; returns all so far."""
        self.methods += methods
        self.data["methods"] = [method.as_dict(self.today) for method in self.methods]
        self._write()
        return self.methods

    def measured(self, choices: Sequence[Choice], turn: dict[Choice, float]) -> Rounds:
        """Add one round; returns all so far. Rates are in the order of ``choices``, None where one failed."""
        self.rounds.append(turn)
        self.data["choices"] = [choice.as_dict(self.today) for choice in choices]
        self.data["rounds"] = [[each.get(choice) for choice in choices] for each in self.rounds]
        self._write()
        return self.rounds

    def conclude(self, rows: Iterable[contest.Row], conclusions: Sequence[str]) -> None:
        """Add what is printed."""
        self.data["rows"] = [
            {
                "name": row.name,
                "level": row.level,
                "seconds": round(row.point.seconds, 2),
                "gain": row.gain and row.gain.as_dict(),
                "autotune_over_it": row.ahead and row.ahead.as_dict(),
            }
            for row in rows
        ]
        self.data["conclusions"] = list(conclusions)
        self._write()
        print(f"written: {self.path}", file=sys.stderr)

    def _write(self) -> None:
        self.path.write_text(json.dumps(self.data, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
