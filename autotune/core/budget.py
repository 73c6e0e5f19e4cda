"""How many seconds a run takes where the user does not say."""

from __future__ import annotations

from autotune.core.knobs.model import COMPILE_BUDGET_SECONDS
from autotune.core.outcome import Completed, Outcome

BUDGETS = ((0.02, 60.0), (0.5, 90.0))
"""Seconds for everything where a step of the baseline takes less than so many seconds..."""
SLOWEST = 150.0
"""...and where it takes longer: a few steps of it belong to every generation of the proof."""
UNKNOWN = 90.0
TRAINING_SHARE, MOST = 0.02, 2 * COMPILE_BUDGET_SECONDS
"""Of the training that is ahead, where the user says how long it will be."""


def usual_budget(train_seconds: float | None, outcome: Outcome | None = None) -> float:
    """Seconds for everything.

    Args:
        train_seconds: how long the training will be, where that was said.
        outcome: what became of the baseline's trial, once it has ended.
    """
    measured = outcome.measurement if isinstance(outcome, Completed) else None
    found = UNKNOWN
    if measured is not None:
        found = next((budget for seconds, budget in BUDGETS if measured.step_seconds < seconds), SLOWEST)
    return max(found, min(MOST, TRAINING_SHARE * (train_seconds or 0.0)))
