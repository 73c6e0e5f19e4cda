"""A grid's file: one JSON object per line; first the header, then one line per trial, appended as it ends."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from autotune.decoding import decoded
from autotune.knobs.knob import Context
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.knobs.task_facts import TaskFacts
from autotune.probes.facts import Inventory
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import KINDS, Completed, Outcome
from benchmarks.grid.plan import HELD, spaces

FOLDER = Path(__file__).parent.parent / "grids"
FORMER_FACTS = {"flops_per_item": None, "workers_refused": None, "processes_refused": "why_not_several"}
"""Facts of a task that older grids call otherwise; None where nobody asks any more."""
DROPPED_KNOBS = {"persistent_workers", "data_parallel", "accumulation"}
"""Knobs of older grids, whose value was neutral or followed from the others'."""


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` of an older grid without the knobs that are no more."""
    return {name: value for name, value in values.items() if name not in DROPPED_KNOBS}


def _renamed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """``facts`` of an older grid under today's names."""
    names = {name: FORMER_FACTS.get(name, name) for name in facts}
    return {"compared": {}} | {new: facts[old] for old, new in names.items() if new is not None}


@dataclass(frozen=True)
class Header:
    """Where and of what a grid was recorded."""

    date: str
    machine: str
    versions: Mapping[str, str]
    inventory: Inventory
    task: TaskFacts
    baseline: Settings
    held: Mapping[str, list[Any]]

    @property
    def context(self) -> Context:
        """What spaces are built from."""
        return Context(self.inventory, self.task, self.baseline)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; nothing in it names the machine's user, host or folders."""
        return {
            **vars(self),
            "inventory": asdict(self.inventory),
            "task": asdict(self.task),
            "baseline": self.baseline.as_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Header:
        """The inverse of `as_dict`."""
        parts = {
            "inventory": TypeAdapter(Inventory).validate_python(data["inventory"]),
            "task": decoded(TaskFacts, _renamed(data["task"])),
            "baseline": Settings(**_settings(data["baseline"])),
        }
        known = {name: data[name] for name in data if name != "gflops"}  # of older grids
        return cls(**{**known, **parts})


@dataclass(frozen=True)
class Recorded:
    """One trial of a grid."""

    round: int
    at: float
    """Seconds of recording before it."""
    settings: Settings
    outcome: Outcome


@dataclass(frozen=True)
class Turns:
    """One contest: settings started afresh side by side, that took blocks in turn."""

    level: str
    number: int
    settings: tuple[Settings, ...]
    """The baseline first."""
    rates: tuple[tuple[float, ...], ...]
    """Items per second of each of ``settings``, by round; 0 where it had ended."""

    @property
    def scatter(self) -> float:
        """Variance of a ratio's mean that the scatter of its rounds alone explains."""
        found = []
        for position in range(1, len(self.settings)):
            logs = [math.log(row[position] / row[0]) for row in self.rates if row[position] > 0 and row[0] > 0]
            if len(logs) > 1:
                found.append(statistics.variance(logs) / len(logs))
        return statistics.mean(found) if found else 0.0

    @property
    def ratios(self) -> dict[Settings, float]:
        """Log speed relative to the baseline: the mean over rounds, each of them paired."""
        found = {}
        for position, settings in enumerate(self.settings):
            logs = [math.log(row[position] / row[0]) for row in self.rates if row[position] > 0 and row[0] > 0]
            if logs:
                found[settings] = statistics.mean(logs)
        return found


@dataclass(frozen=True)
class Grid:
    """A recorded grid."""

    header: Header
    trials: tuple[Recorded, ...]
    turns: tuple[Turns, ...] = ()

    @cached_property
    def spaces(self) -> dict[str, Space]:
        """The space of every level, as recorded."""
        return spaces(self.header.context, {**HELD, **self.header.held})

    @cached_property
    def by_settings(self) -> dict[Settings, list[Recorded]]:
        """Trials by what they measured."""
        found: dict[Settings, list[Recorded]] = {}
        for trial in self.trials:
            found.setdefault(trial.settings, []).append(trial)
        return found

    @cached_property
    def rates(self) -> dict[Settings, float]:
        """The truth in items per second; 0 where settings fail.

        By contests where settings took part in some: paired with the baseline, they see the same machine. Else the
        median over the setting's own trials: a neighbour's burst that spoils one of them says nothing about it.
        """
        rates = {
            settings: statistics.median([rate(trial.outcome) for trial in trials])
            for settings, trials in self.by_settings.items()
        }
        own = rates.get(self.header.baseline, 0.0)
        return rates | {settings: own * math.exp(statistics.mean(logs)) for settings, logs in self.paired.items()}

    @cached_property
    def paired(self) -> dict[Settings, list[float]]:
        """Log speed relative to the baseline, one value per contest."""
        found: dict[Settings, list[float]] = {}
        for contest in self.turns:
            for settings, ratio in contest.ratios.items():
                found.setdefault(settings, []).append(ratio)
        return found

    def optimum(self, level: str) -> tuple[Settings, float]:
        """The best settings of ``level`` and their rate; where there were contests, one that stayed to the last."""
        last = max((turns for turns in self.turns if turns.level == level), key=lambda t: t.number, default=None)
        trusted = [s for s in last.settings if s in self.paired] if last else list(self.rates)
        best = max((s for s in trusted if s in self.spaces[level]), key=self.rates.__getitem__)
        return best, self.rates[best]

    @cached_property
    def seconds(self) -> float:
        """What measuring everything once takes."""
        return math.fsum(statistics.mean(map(cost, trials)) for trials in self.by_settings.values())


def rate(outcome: Outcome) -> float:
    """Items per second; 0 where the trial failed."""
    return outcome.measurement.rate if isinstance(outcome, Completed) and outcome.measurement else 0.0


def cost(trial: Recorded) -> float:
    """Seconds from request to the end of the trial's last process."""
    return trial.outcome.seconds if isinstance(trial.outcome, Completed) else 1.0


def summary(grid: Grid) -> str:
    """One line per level, for people."""
    baseline = grid.rates[grid.header.baseline]
    lines = [f"{len(grid.by_settings)} settings, {len(grid.trials)} trials; one pass takes {grid.seconds:.0f} s"]
    for level in grid.spaces:
        best, found = grid.optimum(level)
        changes = ", ".join(f"{name}={mine}" for name, (mine, _) in best.difference(grid.header.baseline).items())
        lines.append(f"{level:5} {found / baseline:.3f}x  {changes or 'the baseline'}")
    return "\n".join(lines)


def load(path: Path) -> Grid:
    """Read a grid."""
    header, *lines = path.read_text("utf-8").splitlines()
    read = Header.from_dict(json.loads(header))
    parsed = [json.loads(line) for line in lines]
    trials = tuple(decode(line, read.baseline) for line in parsed if "contest" not in line)
    return Grid(read, trials, tuple(_turns(line, read.baseline) for line in parsed if "contest" in line))


def everywhere(folder: Path = FOLDER) -> dict[str, Grid]:
    """All recorded grids, by task."""
    return {path.stem: load(path) for path in sorted(folder.glob("*.jsonl"))}


def encode(trial: Recorded, baseline: Settings) -> dict[str, Any]:
    """Plain data for one line: settings as what they change, blocks as ``[items, seconds, steps, cpu_wait]``."""
    outcome = trial.outcome
    changed = {name: mine for name, (mine, _) in trial.settings.difference(baseline).items()}
    line: dict[str, Any] = {"round": trial.round, "at": round(trial.at, 1), "settings": changed, "end": outcome.kind}
    if not isinstance(outcome, Completed) or outcome.measurement is None:
        return line | {"reason": outcome.reason}
    measured = outcome.measurement
    return line | {
        "seconds": round(outcome.seconds, 3),
        "start": round(outcome.start_seconds, 3),
        "first": round(measured.first_step_seconds, 4),
        "warmup": [round(measured.warmup_seconds, 3), measured.warmup_steps],
        "load": round(measured.load_share, 3),
        "blocks": [[b.items, round(b.seconds, 6), b.steps, round(b.cpu_wait, 4)] for b in measured.blocks],
    }


def decode(line: Mapping[str, Any], baseline: Settings) -> Recorded:
    """The inverse of `encode`."""
    settings = baseline.but(**_settings(line["settings"]))
    if line["end"] != Completed.kind:
        return Recorded(line["round"], line["at"], settings, KINDS[line["end"]](reason=line["reason"]))
    seconds, steps, *_steady = line["warmup"]  # recorded by former versions
    measurement = Measurement(
        blocks=tuple(Block(*block[:4]) for block in line["blocks"]),
        warmup_seconds=seconds,
        warmup_steps=steps,
        first_step_seconds=line["first"],
        load_share=line["load"],
    )
    outcome = Completed(measurement=measurement, seconds=line["seconds"], start_seconds=line["start"])
    return Recorded(line["round"], line["at"], settings, outcome)


def encode_turns(turns: Turns, baseline: Settings) -> dict[str, Any]:
    """Plain data for one line."""
    settings = [{name: mine for name, (mine, _) in s.difference(baseline).items()} for s in turns.settings]
    rates = [[float(f"{rate:.6g}") for rate in row] for row in turns.rates]
    return {"contest": turns.level, "number": turns.number, "settings": settings, "rates": rates}


def _turns(line: Mapping[str, Any], baseline: Settings) -> Turns:
    settings = tuple(baseline.but(**_settings(changed)) for changed in line["settings"])
    return Turns(line["contest"], line["number"], settings, tuple(tuple(row) for row in line["rates"]))
