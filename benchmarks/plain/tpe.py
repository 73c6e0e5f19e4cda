"""Optuna as most people use it: its default sampler (TPE), and fresh processes for each trial.

It is asked and told as in a tuning run with ``--sampler tpe``: from the user's settings on, in the same space, and
what does not fit the machine costs it nothing. All of that is a present to it.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path

from autotune.knobs.knob import Context
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space, build
from autotune.knobs.stated import baseline_settings
from autotune.probes.inventory import probe
from autotune.search.history import Trial
from autotune.search.sampler import searches_of
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed, Outcome
from autotune.trial.target import recognise
from autotune.tuning.runner import open_runner
from benchmarks.plain.side_by_side import Contender, Failed, Trainer


def space_of(task: Path, level: str) -> Space:
    """Return the space that autotune searches for ``task``."""
    inventory = probe()
    with open_runner(recognise(task), inventory, 0, 600.0) as runner:
        facts = runner.describe()
    return build(Context(inventory, facts, baseline_settings(facts, inventory)), level)


def search(task: Path, space: Space, budget: float, trial_seconds: float, seed: int) -> tuple[Settings, int]:
    """Return the best settings that TPE finds within ``budget`` seconds, and how many trials it made."""
    own, trials, ends = space.context.baseline, list[Trial](), time.monotonic() + budget
    searching = searches_of("tpe", seed)(space, own, True, ())
    while time.monotonic() < ends and (proposal := searching.ask()) is not None:
        trial = Trial(proposal.settings, outcome(task, proposal.settings, trial_seconds), space.level)
        searching.tell(trial)
        if time.monotonic() < ends:
            trials.append(trial)
        print(f"  TPE trial {len(trials)}: {trial.rate or 0.0:.1f}/s", file=sys.stderr)
    best = max(trials, key=lambda trial: trial.rate or 0.0, default=None)
    return own if best is None else best.settings, len(trials)


def outcome(task: Path, settings: Settings, seconds: float) -> Outcome:
    """Return what one fresh start measures."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(Contender(task, settings.as_dict()), Path(folder))
            with contextlib.closing(trainer):
                trainer.ready()
                rate = trainer.rate(seconds)
    except Failed as error:
        return Crashed(str(error))
    steps = max(1, round(rate * seconds / settings.global_batch))
    return Completed(measurement=Measurement((Block(round(1e3 * rate * seconds), 1e3 * seconds, 1000 * steps),)))
