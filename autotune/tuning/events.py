"""The events of a tuning run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from autotune.knobs.settings import Settings
from autotune.stats.proof import Proof


class Observer(Protocol):
    """Called with what has changed in the view of the run, `autotune.report.live.RunProgress`.

    Args:
        stage: a part of the run has begun, named in plain words.
        trying: it has begun with a trial of these settings.
        baseline: the settings that all others are compared with.
        unit: of rates.
        budget: seconds that the whole run will take.
        trials: how many have ended.
        failures: how many of them failed.
        last_failure: why the last of them did.
        baseline_rate: items per second of the baseline; None until measured.
        best: the fastest settings so far.
        gain: how much faster they are, where that was measured with an interval.
        rounds: of each candidate of a race or proof so far, by name.
    """

    def __call__(
        self,
        *,
        stage: str = ...,
        trying: Settings | None = ...,
        baseline: Settings = ...,
        unit: str = ...,
        budget: float = ...,
        trials: int = ...,
        failures: int = ...,
        last_failure: str = ...,
        baseline_rate: float | None = ...,
        best: Settings = ...,
        gain: Proof | None = ...,
        rounds: Mapping[str, int] = ...,
    ) -> None: ...


def ignore(**changes: Any) -> None:
    """Do nothing."""
