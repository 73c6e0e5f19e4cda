"""Measures settings inside one running training: the user's own and others in turn, a visit each.

Used where a trial cannot be forked at the place where the script trains: each would run the script from its start. Here
that is paid once. What is measured is a ratio to the user's own settings, a moment before and after, so that neither
the luck of a process nor the drift of the machine is in it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from autotune.knobs.settings import Settings
from autotune.stats.measurement import Block
from autotune.stats.outcome import Completed, Outcome
from autotune.trial.parent.judge import judge
from autotune.trial.parent.runner import RunningTrial

Found = TypeVar("Found")
BLOCK_SECONDS = 0.2
BLOCKS = 3
"""Of a visit."""


@dataclass(frozen=True)
class Visit:
    """A few blocks of one settings, one after the other."""

    blocks: tuple[Block, ...]
    last: Completed

    @property
    def log_rates(self) -> tuple[float, ...]:
        """Return the log rate of each block."""
        return tuple(math.log(block.rate) for block in self.blocks)


class LiveTrials:
    """A running training that takes turns between the user's settings and others.

    Settings that need a process of their own have one for one measurement, while the first is paused.

    Args:
        start: starts a training with settings, warm and paused; one that ended did not start.
        own: the user's settings.
        deadline: returns the end of the budget.
    """

    def __init__(self, start: Callable[[Settings], RunningTrial], own: Settings, deadline: Callable[[], float]) -> None:
        self._start, self._own, self._deadline = start, own, deadline
        self._trial: RunningTrial | None = None
        self._latest: Visit | None = None
        """Of the user's settings, if nothing else was visited since."""
        self._level: float | None = None
        """Log rate of the user's settings when they were first visited: all rates are relative to it."""

    def measure(self, settings: Settings, deadline: float = math.inf) -> Outcome:
        """Return the rate of ``settings``, as if the machine were as it was at the first visit of the user's own.

        The user's own are measured against themselves a moment before: their rates show how far two visits differ.
        Settings that are not measured by the ``deadline`` are timed out.
        """
        before = self._latest or self._visit_own()
        if isinstance(before, Outcome):
            return before
        self._latest = before
        theirs = self._visit_own() if settings == self._own else self._visit_other(settings, deadline)
        if isinstance(theirs, Outcome):
            return theirs
        after = before if settings == self._own else self._visit_own()
        if isinstance(after, Outcome):
            return after
        self._latest = theirs if settings == self._own else after
        return self._completed(theirs, before, after)

    def compare(self, settings: Settings, reference: Settings) -> Outcome:
        """Compare the first steps of ``settings`` with those of ``reference`` in the running training."""
        return self._in_training(lambda trial: trial.compare(settings, reference) or self._ended(trial))

    def close(self) -> None:
        """End the training, if it runs."""
        if self._trial is not None:
            self._trial.close()
        self._trial, self._latest = None, None

    def _visit_own(self) -> Visit | Outcome:
        """Visit the user's settings, in a new training if none runs."""
        visit = self._in_training(lambda trial: self._visit(trial, self._own))
        if self._level is None and isinstance(visit, Visit):
            self._level = statistics.fmean(visit.log_rates)
        return visit

    def _visit_other(self, settings: Settings, deadline: float) -> Visit | Outcome:
        """Visit other settings: in the running training if they need no other start."""
        self._latest = None
        if settings.start_part == self._own.start_part:
            return self._in_training(lambda trial: self._visit(trial, settings, deadline))
        with self._start(settings) as trial:
            return self._visit(trial, settings, deadline)

    def _in_training(self, work: Callable[[RunningTrial], Found]) -> Found:
        """Do ``work`` in the running training, a new one if there is none. Do it in another one if that comes to its
        own end meanwhile, which no settings are to blame for."""
        for _ in range(2):
            trial = self._trial = self._trial or self._start(self._own)
            found = work(trial)
            if not trial.is_over:
                break
        return found

    def _ended(self, trial: RunningTrial) -> Outcome:
        """Return how ``trial`` ended."""
        trial.close()
        if trial is self._trial:
            self._trial, self._latest = None, None
        return judge(trial.end)

    def _visit(self, trial: RunningTrial, settings: Settings, deadline: float = math.inf) -> Visit | Outcome:
        """Measure a few blocks of ``settings``, or return how they failed."""
        blocks: list[Block] = []
        trial.timeouts = replace(trial.timeouts, deadline=min(deadline, self._deadline()))
        while True:
            outcome = trial.turn(BLOCK_SECONDS, settings)
            if outcome is None:
                return self._ended(trial)
            if not isinstance(outcome, Completed) or outcome.measurement is None:
                return outcome
            blocks += outcome.measurement.blocks
            if len(blocks) == BLOCKS:
                return Visit(tuple(blocks), replace(outcome, start_seconds=trial.end.start_seconds))

    def _completed(self, theirs: Visit, before: Visit, after: Visit) -> Completed:
        """Return what was measured; the time of each block is corrected by the user's settings beside it."""
        assert self._level is not None
        assert theirs.last.measurement is not None
        blocks = [
            replace(block, seconds=block.seconds * math.exp((one + other) / 2 - self._level))
            for block, one, other in zip(theirs.blocks, before.log_rates, after.log_rates, strict=True)
        ]
        return replace(theirs.last, measurement=replace(theirs.last.measurement, blocks=tuple(blocks)))
