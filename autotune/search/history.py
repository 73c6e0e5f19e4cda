"""What happened in a tuning run, trial by trial and round by round: what its journal keeps beside the profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotune.knobs.settings import Settings
from autotune.stats.measurement import Measurement
from autotune.stats.proof import Round


@dataclass(frozen=True)
class TriedSettings:
    """One trial.

    Attributes:
        settings: that were tried.
        level: that was searched then.
        stage: why they were tried: ``baseline``, ``moves``, ``model``...
        seconds: since the first trial ended.
        measurement: None where it failed.
        kind, reason: how it ended.
    """

    settings: Settings
    level: str
    stage: str
    seconds: float
    measurement: Measurement | None
    kind: str
    reason: str = ""


@dataclass(frozen=True)
class History:
    """One run, oldest first.

    Attributes:
        trials: of the search.
        rounds: of the proof.
    """

    trials: tuple[TriedSettings, ...] = ()
    rounds: tuple[Round, ...] = ()

    def measured(self) -> Iterator[tuple[TriedSettings, Measurement]]:
        """Trials that gave a rate."""
        for trial in self.trials:
            if trial.measurement is not None and trial.measurement.rate > 0:
                yield trial, trial.measurement

    def of(self, settings: Settings) -> Measurement | None:
        """The last measurement of ``settings``."""
        found = [measurement for trial, measurement in self.measured() if trial.settings == settings]
        return found[-1] if found else None


@dataclass(frozen=True)
class Effect:
    """What one knob brought.

    Attributes:
        knob: its name.
        alone: rate with its value in the baseline, over the baseline's; None where that was not tried.
        kept: rate of the winner, over that of the winner with the baseline's value; None where that was not tried.
        error: relative standard error of these, as far as single trials tell.
    """

    knob: str
    alone: float | None
    kept: float | None
    error: float


def effects(history: History, baseline: Settings, winner: Settings) -> tuple[Effect, ...]:
    """What each knob that the ``winner`` changes brought, as far as the run tried it."""
    found = []
    for knob, (value, before) in winner.difference(baseline).items():
        alone = _ratio(history, _but(baseline, knob, value), baseline)
        kept = _ratio(history, winner, _but(winner, knob, before))
        errors = [each[1] for each in (alone, kept) if each]
        if errors:
            found.append(Effect(knob, alone and alone[0], kept and kept[0], max(errors)))
    return tuple(found)


def _but(settings: Settings, knob: str, value: object) -> Settings:
    return settings.but(**{knob: value})


def _ratio(history: History, ours: Settings, theirs: Settings) -> tuple[float, float] | None:
    """Ratio of two rates and its relative error; None where one was not measured, or both are the same."""
    one, other = history.of(ours), history.of(theirs)
    if one is None or other is None or ours == theirs:
        return None
    errors = [each.relative_error if each.relative_error < 1 else 1.0 for each in (one, other)]
    return one.rate / other.rate, (errors[0] ** 2 + errors[1] ** 2) ** 0.5
