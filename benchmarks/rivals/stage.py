"""What every method is given: the task, today's settings, the space of each level, a budget and a clock."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.knobs.baseline import baseline_settings
from autotune.knobs.knob import LEVELS, Context
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space, build
from autotune.knobs.task import TaskFacts
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.trial.target import recognise
from autotune.tuning.host_runner import open_runner
from benchmarks.rivals.history import Choice, Trial
from benchmarks.rivals.measuring import Failed, TimeUp, rate

LOCK_PATIENCE = 600.0


@dataclass(frozen=True)
class Stage:
    """One task on this machine. Methods that search get the knobs and values that autotune searches."""

    task: Path
    facts: TaskFacts
    inventory: Inventory
    current: Settings
    spaces: Mapping[str, Space]
    level: str
    """What methods that keep the global batch may change."""
    trial_seconds: float
    seed: int


def open_stage(task: Path, level: str, trial_seconds: float, seed: int) -> Stage:
    """Read the facts off the task; the time this takes is counted for nobody."""
    inventory = probe()
    with open_runner(recognise(task), inventory, seed, LOCK_PATIENCE) as runner:
        facts = runner.describe()
    if facts.device != "cpu":
        raise SystemExit(f"{task}: the neutral trial trains on the CPU, autotune would on {facts.device}: not the same")
    current = baseline_settings(facts, inventory)
    context = Context(inventory, facts, current)
    spaces = {name: build(context, name) for name in LEVELS}
    return Stage(task, facts, inventory, current, spaces, level, trial_seconds, seed)


@dataclass
class Search:
    """The trials of one method, each a fresh process, until the budget is over."""

    stage: Stage
    budget: float
    launcher: str = "plain"
    started: float = field(default_factory=time.monotonic)
    trials: list[Trial] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Seconds until the budget is over."""
        return self.started + self.budget - time.monotonic()

    def measure(self, settings: Settings, launcher: str = "") -> float | None:
        """Items per second of ``settings``; None where they failed.

        Raises:
            TimeUp: the budget is over; what was running counts for nothing.
        """
        choice, found, note = Choice(settings, launcher or self.launcher), None, ""
        try:
            found = rate(self.stage.task, settings.as_dict(), self.stage.trial_seconds, choice.launcher, self.left)
        except TimeUp:
            raise
        except Failed as error:
            note = str(error)
        trial = Trial(time.monotonic() - self.started, choice, found, note)
        self.trials.append(trial)
        shown = note or f"{found:.1f}/s"
        print(f"  {trial.seconds:6.1f} s  {shown}  {changes(settings, self.stage.current)}", file=sys.stderr)
        return found


def changes(settings: Settings, current: Settings) -> str:
    """What differs from today's settings, in one line."""
    differing = [f"{name} {mine}" for name, (mine, _) in settings.difference(current).items() if mine != "gloo"]
    return ", ".join(differing) or "today's settings"
