"""Why a training step is as slow as it is, in one sentence for the result of a tuning run."""

from __future__ import annotations

from typing import Protocol

from autotune.diagnosis.diagnose import quick_verdict
from autotune.diagnosis.inspection import Inspection
from autotune.errors import NothingUsable
from autotune.knobs.settings import Settings
from autotune.stats.measurement import Measurement
from autotune.stats.outcome import Completed
from autotune.trial.parent.trial_bench import TrialBench
from autotune.tuning.events import Observer, StageStarted
from autotune.tuning.host_speed import limits

MOST_STEP_SECONDS = 0.05
"""Longer steps would take the diagnosis more than three seconds."""


class Known(Protocol):
    """`autotune.tuning.baseline.Baseline`: the user's settings and how their trial ended."""

    @property
    def settings(self) -> Settings:
        """The user's."""

    @property
    def outcome(self) -> Completed:
        """Of their trial."""


def why(bench: TrialBench, baseline: Known, deadline: float, observe: Observer) -> str:
    """What bounds a step of the user's settings, from one more trial; empty where that takes long or fails.

    Args:
        bench: runs the trial.
        baseline: the user's settings.
        deadline: on the monotonic clock.
        observe: called when the trial begins.
    """
    settings, measured = baseline.settings, baseline.outcome.measurement
    if measured is None or sum(block.seconds for block in measured.kept) > MOST_STEP_SECONDS * _steps(measured):
        return ""
    observe(StageStarted("each part of a step"))
    try:
        inspection = Inspection.from_dict(bench.inspect(settings, deadline))
    except NothingUsable:
        return ""
    precision = settings.precision if settings.precision == "bf16" else "fp32"
    return quick_verdict(inspection, limits(precision), settings, measured.load_share).sentence


def _steps(measured: Measurement) -> int:
    """In undisturbed blocks."""
    return sum(block.steps for block in measured.kept)
