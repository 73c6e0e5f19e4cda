"""A tuning run in one record: what its phases work with, and all that they have found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autotune.knobs.level import LOWEST
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.search.history import Trial, first_measured, trial_noise
from autotune.stats.outcome import Completed, Outcome
from autotune.stats.proof import BASELINE, Round, typical_rate
from autotune.trial.parent.trial_bench import TrialBench
from autotune.tuning.events import Observer, ignore

if TYPE_CHECKING:
    from autotune.search.sampler import LevelSearch

FINISH_SECONDS = 1.0
"""Kept back from the budget for ending the last trial and writing the profile."""
BASELINE_SHARE, LEAST_PATIENCE, MOST_PATIENCE = 0.4, 10.0, 60.0
"""The baseline's first trial may show no sign of life for this share of the budget, within these seconds."""


class Schedule:
    """Owns the deadline of one run.

    Args:
        clock: monotonic seconds.
        started: when the budget began to count, on that clock.
        budget: seconds for everything.

    Attributes:
        uncounted: seconds that the budget does not count: what a script does before it trains.
        waited: seconds before ``started``.
    """

    def __init__(self, clock: Callable[[], float], started: float, budget: float) -> None:
        self.clock, self.started, self.budget = clock, started, budget
        self.search_started = clock()
        self.uncounted = self.waited = 0.0

    @property
    def deadline(self) -> float:
        """Return when measuring must end, on the clock."""
        return self.started + self.uncounted + self.budget - FINISH_SECONDS

    @property
    def total(self) -> float:
        """Return the seconds that the user may see pass."""
        return self.waited + self.uncounted + self.budget

    @property
    def elapsed(self) -> float:
        """Return the seconds since the start of the run."""
        return self.clock() - self.started

    @property
    def left(self) -> float:
        """Return the seconds until the deadline."""
        return self.deadline - self.clock()

    @property
    def patience(self) -> float:
        """Return the seconds without a sign of life that the baseline's first trial may take."""
        return min(MOST_PATIENCE, max(LEAST_PATIENCE, BASELINE_SHARE * self.budget))

    @property
    def whole(self) -> float:
        """Return the seconds from the start of the search to the deadline."""
        return self.deadline - self.search_started

    def search_share(self, kept_back: float, ahead: float = 0.0) -> float:
        """Return the share of the searching time that will be over ``ahead`` seconds from now.

        Args:
            kept_back: seconds of the run that belong to race and proof.
            ahead: seconds from now.
        """
        searching = self.whole - kept_back
        return (self.clock() + ahead - self.search_started) / searching if searching > 0 else math.inf


@dataclass(kw_only=True)
class RunState:
    """One tuning run. The result is made of it, whether the run was complete or interrupted."""

    baseline: Settings
    """The user's own settings."""
    bench: TrialBench
    schedule: Schedule
    spaces: Mapping[str, Space]
    """Feasible settings by level, lowest first."""
    observe: Observer = ignore
    record: Callable[[Trial], None] = field(default=lambda _trial: None)
    """Keeps a trial for ``--resume``."""
    new_search: Callable[[Space, Settings, bool, Sequence[Trial]], LevelSearch]
    """``(space, start, thorough, history)``: the search of one level."""
    look_ahead: Callable[[str], None] = field(default=lambda _level: None)
    """Measures what a level needs before it is searched; it may change `spaces` and `worth`."""
    look_closer: Callable[[], None] = field(default=lambda: None)
    """Does what is slow and may change `spaces`, before levels are searched again."""
    worth: Callable[[Settings], float] = field(default=lambda _settings: 1.0)
    """What an item is worth in a batch of settings: all rates below are by it."""
    within_limits: Callable[[Settings, Outcome], Outcome] = field(default=lambda _settings, outcome: outcome)
    """Returns the outcome of a trial, or `OutOfMemory` if it held more than the user allows."""
    settle: Callable[[Settings], Settings] = field(default=lambda settings: settings)
    """Returns settings without the knobs that change the user's first steps."""

    history: list[Trial] = field(default_factory=list)
    """All trials, oldest first."""
    estimates: dict[Settings, float] = field(default_factory=dict)
    """Mean rate of the trials of each settings, in items per second."""
    start_seconds: float = 0.0
    """Seconds that starting a candidate takes if no trial of its settings was measured."""
    items_per_sample: float = 1.0
    trial_seconds: list[float] = field(default_factory=list)
    """Seconds that trials took, oldest first."""
    searched: set[str] = field(default_factory=set)
    """Levels that were searched at least once."""
    exhausted: set[str] = field(default_factory=set)
    """Levels of which nothing was left that is worth a trial."""
    chosen: dict[str, Settings] = field(default_factory=dict)
    """The candidate of each level."""
    advised: Settings | None = None
    """What the user could change in his own code: proven beside the levels, and never applied."""
    raced: set[Settings] = field(default_factory=set)
    """Settings that ran in the race."""
    race_rounds: list[Round] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    """Rounds of the proof."""
    cpu_wait: float = 0.0
    """Largest CPU wait share of a candidate, lately."""
    slowness: float = 1.0
    """How many times as long as expected the last replicate took to start and to warm up."""

    def measure(
        self, settings: Settings, level: str, give_up_below: float = 0.0, deadline: float | None = None
    ) -> Trial:
        """Run one trial (see `Proposal`) until ``deadline`` at most, or until that of the run, and keep it."""
        deadline = self.schedule.deadline if deadline is None else deadline
        trial = Trial(settings, self.bench.measure(settings, give_up_below, deadline), level)
        self.record(trial)
        self.add(trial)
        return self.history[-1]

    def add(self, *trials: Trial) -> None:
        """Add finished trials, as far as they keep within the limits. Rates of repeated settings are averaged."""
        for each in trials:
            outcome = self.within_limits(each.settings, each.outcome)
            trial = replace(each, outcome=outcome, worth=self.worth(each.settings))
            self.history.append(trial)
            if trial.rate:
                rates = [each.rate for each in self.history if each.settings == trial.settings and each.rate]
                self.estimates[trial.settings] = sum(rates) / len(rates)

    def count_by(self, worth: Callable[[Settings], float]) -> None:
        """Count each item by its ``worth``, also in the trials that there are."""
        self.worth, known = worth, self.history
        self.history, self.estimates = [], {}
        self.add(*known)

    def measure_anew(self) -> None:
        """Measure the baseline in another way than so far, and forget earlier rates; what failed is still known."""
        failed = [trial for trial in self.history if not trial.outcome.measured]
        again = self.measure(self.baseline, LOWEST)
        if again.rate:
            self.history, self.estimates = [], {}
            self.add(*failed, again)

    def estimate_durations(self) -> None:
        """Estimate how long starts and trials take from the trials before the search, at least the baseline's."""
        plain = [trial for trial in self.history if trial.settings.compile == self.baseline.compile]
        starts = [trial.outcome.start_seconds for trial in plain if isinstance(trial.outcome, Completed)]
        self.start_seconds = max(starts, default=0.0)
        self.items_per_sample = items_per_sample(self.history)
        self.cpu_wait = max((each.measurement.cpu_wait for each in plain if each.measurement), default=0.0)
        self.trial_seconds = [trial.outcome.seconds for trial in self.history if isinstance(trial.outcome, Completed)]

    def estimate(self, settings: Settings) -> float:
        """Return the mean rate of the settings' trials in items per second; 0 if none was measured."""
        return self.estimates.get(settings, 0.0)

    def tried(self, level: str) -> list[Settings]:
        """Return all settings but the baseline that were tried for ``level``, oldest first."""
        return [each.settings for each in self.history if each.level == level and each.settings != self.baseline]

    @property
    def baseline_rate(self) -> float:
        """Return the best estimate of the baseline's rate in items per second; 0 before it is measured."""
        return typical_rate(self.rounds, BASELINE) or self.estimate(self.baseline)

    @property
    def best(self) -> Settings:
        """Return the settings with the best estimate; the baseline before any is known."""
        return max(self.estimates, key=self.estimate, default=self.baseline)

    @property
    def noise(self) -> float:
        """Return the relative standard deviation between trials of the same settings."""
        return trial_noise(self.history)

    @property
    def replicates(self) -> int:
        """Return the number of replicates of the proof so far."""
        return max((turn.replicate for turn in self.rounds), default=0)


def items_per_sample(history: Sequence[Trial]) -> float:
    """Return the average number of items (tokens, say) in a sample, by the first measured trial."""
    settings, measured = first_measured(history)
    samples = sum(block.steps for block in measured.blocks) * settings.global_batch
    return sum(block.items for block in measured.blocks) / samples if samples else 1.0
