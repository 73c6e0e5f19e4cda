"""Settings in, outcomes and rounds out: how the tuner's loop uses the runner."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotune.core.measurement import FAR, Block
from autotune.core.outcome import Completed, Outcome
from autotune.core.settings import Settings
from autotune.trial.parent.judge import check_losses, judge
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.running_trial import Limits, Trial
from autotune.trial.spec import TrialSpec

PATIENCE = 10.0
"""A trial may be this many times slower to start or to step than the baseline before it counts as hung..."""
RESIDENT_WARMUP = 1.0
"""Cap on the warm-up of a contender, in seconds: its settings have shown a steady state before."""
LEAST_SECONDS = 10.0
"""...but never less than this."""


class TrialBench:
    """Measures settings with real trials and holds them against the baseline's losses.

    Args:
        runner: starts and watches trials.
        baseline: the user's settings; their first measured trial gives the reference losses.
        seed: of data order and weights, and of the order of turns.
        patience: seconds without a sign of life that the baseline's first trial may take.
    """

    def __init__(self, runner: Runner, baseline: Settings, seed: int = 0, patience: float = 60.0) -> None:
        self.runner, self.baseline, self.seed = runner, baseline, seed
        self.limits = Limits(starting=patience, stepping=patience)
        self.reference: tuple[float, ...] = ()
        self.turns = random.Random(seed)
        self.fresh = ""
        self.searched: list[tuple[int, float]] = []
        self.crossings: list[tuple[int, float]] = []
        """Number of threads and `Block.crossing`, of every trial and of every block of a contest."""
        self.undisturbed = False
        """Whether any trial was: a load that never ends is this machine's normal."""

    def remember(self, outcome: Outcome) -> None:
        """Take reference losses and watchdog limits from an outcome of the baseline."""
        if not isinstance(outcome, Completed) or outcome.measurement is None:
            return
        self.reference = self.reference or outcome.losses
        step = outcome.measurement.step_seconds
        self.limits = Limits(
            starting=max(LEAST_SECONDS, PATIENCE * outcome.start_seconds),
            stepping=max(LEAST_SECONDS, PATIENCE * step),
        )

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        """One trial, judged by how it ended and by its losses; once more where others disturbed all of it."""
        outcome = self._measure(settings, give_up_below, deadline)
        disturbed = isinstance(outcome, Completed) and outcome.measurement is not None and outcome.measurement.disturbed
        if disturbed and self.undisturbed:
            outcome = self._measure(settings, give_up_below, deadline)
        self.undisturbed = self.undisturbed or (outcome.measured and not disturbed)
        return outcome

    def _measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        spec = TrialSpec(settings=settings, seed=self.seed, give_up_below=give_up_below)
        end = self.runner.run(spec, replace(self.limits, deadline=deadline))
        self.fresh = end.fresh
        outcome = judge(settings, end)
        if settings == self.baseline:
            self.remember(outcome)
        if isinstance(outcome, Completed) and outcome.measurement and outcome.measurement.crossing:
            self.searched.append((settings.threads, outcome.measurement.crossing))
        return check_losses(
            outcome, settings, self.reference, same_batch=settings.global_batch == self.baseline.global_batch
        )

    @contextlib.contextmanager
    def contest(self, contenders: Mapping[str, Settings], deadline: float) -> Iterator[TrialContest]:
        """All ``contenders`` started afresh in random order, warm and paused."""
        trials: dict[str, Trial] = {}
        limits = replace(self.limits, deadline=deadline)
        try:
            for name in self._shuffled(list(contenders)):
                spec = TrialSpec(
                    settings=contenders[name], seed=self.seed, resident=True, warmup_seconds=RESIDENT_WARMUP
                )
                trials[name] = trial = self.runner.start(spec, limits)
                self.runner.ready(trial)
            contest = TrialContest(self.runner, trials, self.turns)
            yield contest
            self.crossings += [(contenders[name].threads, crossing) for name, crossing in contest.crossings]
        finally:
            for trial in trials.values():
                self.runner.stop(trial)

    def _shuffled(self, names: list[str]) -> list[str]:
        self.turns.shuffle(names)
        return names


class TrialContest:
    """Resident trials that take blocks in turn."""

    def __init__(self, runner: Runner, trials: Mapping[str, Trial], turns: random.Random) -> None:
        self.runner, self.trials, self.turns = runner, trials, turns
        self.nearest: dict[str, float] = {}
        """The least `Block.crossing` of each."""
        self.crossings: list[tuple[str, float]] = []
        """Of every block that counts, where it has one."""

    def round(self, seconds: float) -> dict[str, float]:
        """One block of each, in random order: items per second by name. A contender that ended is left out."""
        blocks = self._blocks(seconds)
        if self._moved(blocks):
            # Some had near cores and some had not: once more, with the cores where they are now.
            blocks = self._blocks(seconds)
        self.crossings += [(name, block.crossing) for name, block in blocks.items() if block.crossing]
        return {name: block.rate for name, block in blocks.items()}

    def _blocks(self, seconds: float) -> dict[str, Block]:
        names = list(self.trials)
        self.turns.shuffle(names)
        blocks: dict[str, Block] = {}
        for name in names:
            block = self.runner.block(self.trials[name], seconds)
            if block is not None and block.disturbed:
                # Once more: a burst is over by then, and a load that lasts is this machine's normal.
                block = self.runner.block(self.trials[name], seconds)
            if block is not None:
                blocks[name] = block
        return blocks

    def _moved(self, blocks: Mapping[str, Block]) -> bool:
        """Whether the cores were far apart for some blocks of a round and near for others."""
        known = {name: block.crossing for name, block in blocks.items() if block.crossing}
        self.nearest |= {name: min(found, self.nearest.get(name, found)) for name, found in known.items()}
        return len({found > FAR * self.nearest[name] for name, found in known.items()}) > 1
