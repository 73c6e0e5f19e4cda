"""What a tuning run knows so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autotune.knobs.settings import Settings
from autotune.search.protocol import Observation, trial_noise
from autotune.stats.decide import BASELINE, typical_rate
from autotune.stats.outcome import Completed
from autotune.stats.proof import Round


@dataclass
class RunState:
    """Everything that has been found. The result is made of it, whether the run was complete or interrupted."""

    baseline: Settings
    start_seconds: float = 0.0
    """What starting a contender takes if no trial of its settings was measured."""
    items_per_sample: float = 1.0
    history: list[Observation] = field(default_factory=list)
    """All trials, oldest first."""
    estimates: dict[Settings, float] = field(default_factory=dict)
    """Mean rate of the trials of each settings, in items per second."""
    trial_seconds: list[float] = field(default_factory=list)
    """What trials took, oldest first."""
    searched: set[str] = field(default_factory=set)
    """Levels that were searched at least once."""
    chosen: dict[str, Settings] = field(default_factory=dict)
    """The contender of each level."""
    raced: set[Settings] = field(default_factory=set)
    """What ran in the race."""
    race_rounds: list[Round] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    """Rounds of the proof."""
    missed: float = 0.0
    """Share of its processors' time that the contender missed which missed most, lately: it waited while others ran."""
    slowness: float = 1.0
    """How many times as long as expected the last generation took to start and to warm up."""

    @classmethod
    def after(cls, baseline: Settings, history: Sequence[Observation]) -> RunState:
        """The state after ``history``, which holds at least the baseline's trial."""
        completed = [o.outcome for o in history if isinstance(o.outcome, Completed)]
        plain = [
            o.outcome for o in history if isinstance(o.outcome, Completed) and o.settings.compile == baseline.compile
        ]
        start_seconds = max((outcome.start_seconds for outcome in plain), default=0.0)
        state = cls(baseline, start_seconds, items_per_sample(history))
        state.missed = max((outcome.measurement.stolen for outcome in plain if outcome.measurement), default=0.0)
        state.trial_seconds += [outcome.seconds for outcome in completed]
        for observation in history:
            state.add(observation)
        return state

    def add(self, observation: Observation) -> None:
        """Add one trial. Rates of repeated settings are averaged."""
        self.history.append(observation)
        if observation.rate:
            rates = [o.rate for o in self.history if o.settings == observation.settings and o.rate]
            self.estimates[observation.settings] = sum(rates) / len(rates)

    def estimate(self, settings: Settings) -> float:
        """Mean rate of the settings' trials in items per second; 0 if none was measured."""
        return self.estimates.get(settings, 0.0)

    @property
    def baseline_rate(self) -> float:
        """Best estimate of the baseline's rate in items per second; 0 before it is measured."""
        return typical_rate(self.rounds, BASELINE) or self.estimate(self.baseline)

    @property
    def best(self) -> Settings:
        """The settings with the best estimate; the baseline before any is known."""
        return max(self.estimates, key=self.estimate, default=self.baseline)

    @property
    def noise(self) -> float:
        """Relative standard deviation between trials of the same settings."""
        return trial_noise(self.history)

    @property
    def generations(self) -> int:
        """Generations of the proof so far."""
        return max((turn.generation for turn in self.rounds), default=0)


def items_per_sample(history: Sequence[Observation]) -> float:
    """Average number of items (tokens, say) in a sample, by the first measured trial; 1 if there is none."""
    for observation in history:
        outcome = observation.outcome
        if isinstance(outcome, Completed) and outcome.measurement is not None:
            blocks = outcome.measurement.blocks
            samples = sum(block.steps for block in blocks) * observation.settings.global_batch
            if samples:
                return sum(block.items for block in blocks) / samples
    return 1.0
