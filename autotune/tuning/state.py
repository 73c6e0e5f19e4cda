"""What a tuning run knows and needs: the bench it measures on, what it has found, and its first step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from autotune.core.baseline import smaller_baselines
from autotune.core.decide import BASELINE, UNREACHED, decide, typical_rate
from autotune.core.errors import NothingUsable, UserCodeError
from autotune.core.outcome import BUDGET_OVER, Completed, Outcome, OutOfMemory, Skipped, TimedOut
from autotune.core.profile import LevelResult
from autotune.core.proof import CONFIDENCE, Proof, Round
from autotune.core.settings import Settings
from autotune.search.protocol import Observation, trial_noise


class Contest(Protocol):
    """One generation of resident contenders."""

    def round(self, seconds: float) -> dict[str, float]:
        """One block of each, in random order: items per second by name. A contender that ended is left out."""


class Bench(Protocol):
    """Where settings are measured."""

    baseline: Settings
    """What losses are compared with."""

    def remember(self, outcome: Outcome) -> None:
        """Take the reference losses from an outcome of the baseline."""

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        """One trial, judged."""

    def contest(self, contenders: Mapping[str, Settings], deadline: float) -> AbstractContextManager[Contest]:
        """A context manager that gives a `Contest` of warm, paused contenders."""


Observer = Callable[..., None]
"""Called with the changes of the progress view as keywords."""


@dataclass
class Tuning:
    """What has been found so far; complete or not, it is what an answer is made of."""

    baseline: Settings
    history: list[Observation] = field(default_factory=list)
    chosen: dict[str, Settings] = field(default_factory=dict)
    estimates: dict[Settings, float] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)

    @property
    def baseline_rate(self) -> float:
        """Best estimate of the baseline's rate in items per second; 0 before it is measured."""
        return typical_rate(self.rounds, BASELINE) or self.estimates.get(self.baseline, 0.0)

    @property
    def best(self) -> Settings:
        """The settings with the best estimate; the baseline before any is known."""
        return max(self.estimates, key=self.estimate, default=self.baseline)

    def estimate(self, settings: Settings) -> float:
        """Mean rate of the settings' trials in items per second; 0 where none was measured."""
        return self.estimates.get(settings, 0.0)

    @property
    def noise(self) -> float:
        """Relative standard deviation from trial to trial of the same settings."""
        return trial_noise(self.history)

    def book(self, observation: Observation) -> None:
        """Add one trial; repeated settings are averaged."""
        self.history.append(observation)
        if observation.rate:
            rates = [o.rate for o in self.history if o.settings == observation.settings and o.rate]
            self.estimates[observation.settings] = sum(rates) / len(rates)

    def results(self, levels: Sequence[str]) -> dict[str, LevelResult]:
        """The answer of each level by the proof."""
        results = decide(self.baseline, self.baseline_rate, self.chosen, self.rounds, levels)
        reached = {observation.level for observation in self.history}
        for level in set(levels) - reached - set(self.chosen):
            results[level] = replace(results[level], note=UNREACHED)
        refused = self._precision_refused()
        if refused and results["amp"].settings.precision == self.baseline.precision:
            results["amp"] = replace(results["amp"], note=refused)
        return results

    def _precision_refused(self) -> str:
        """Why no other precision ran, where some were tried; empty where one ran."""
        tried = [o for o in self.history if o.settings.precision != self.baseline.precision]
        if not tried or any(o.outcome.measured for o in tried):
            return ""
        return f"no {tried[-1].settings.precision}: {tried[-1].outcome.reason}"

    def partial_results(self, levels: Sequence[str]) -> dict[str, LevelResult]:
        """The best so far of each level, without proof: what an interrupted run saves."""
        rate = self.baseline_rate
        results: dict[str, LevelResult] = {}
        settings = self.baseline
        for level in levels:
            tried = [o.settings for o in self.history if o.level == level and o.rate]
            settings = self.chosen.get(level) or max([settings, *tried], key=lambda s: self.estimates.get(s, 0.0))
            own = self.estimates.get(settings, rate)
            ratio = Proof(own / rate if rate else 1.0, low=0.0, high=math.inf, confidence=CONFIDENCE, rounds=0)
            results[level] = LevelResult(settings, own, ratio, proven=False, note="interrupted before the proof")
        return results


def settle_baseline(
    bench: Bench,
    wanted: Settings,
    history: list[Observation],
    record: Callable[[Observation], None],
    deadline: float,
    warnings: list[str],
) -> Settings:
    """Measure the user's settings, or the gentlest change of them that fits the machine's memory.

    Args:
        bench: where settings are measured.
        wanted: the user's settings.
        history: trials so far; every trial run here is added.
        record: keeps an observation for resuming.
        deadline: of the whole run.
        warnings: what was given up is added.

    Raises:
        UserCodeError: the user's code failed; carries its own traceback.
        NothingUsable: nothing fits.
    """
    known = {observation.settings: observation.outcome for observation in history}
    outcome: Outcome = Skipped("not measured")
    for settings, change in ((wanted, ""), *smaller_baselines(wanted)):
        bench.baseline = settings
        outcome = known.get(settings) or bench.measure(settings, 0.0, deadline)
        if settings in known:
            bench.remember(outcome)
        else:
            history.append(Observation(settings, outcome, "safe"))
            record(history[-1])
        if isinstance(outcome, Completed):
            if change:
                warnings.append(f"the baseline is your settings {change}")
            return settings
        if isinstance(outcome, TimedOut) and outcome.phase == BUDGET_OVER:
            raise NothingUsable("the budget ended before your own settings were measured: give a longer --budget")
        if not isinstance(outcome, OutOfMemory):
            raise UserCodeError(f"the task failed under your own settings: {outcome.reason}", outcome.detail)
        if settings == wanted:
            warnings.append(f"your own settings do not fit this machine: {outcome.reason}")
    raise NothingUsable(f"nothing fits this machine's memory: {outcome.reason}\n{outcome.detail}")
