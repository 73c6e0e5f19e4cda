"""The default length of a tuning run."""

from __future__ import annotations

from autotune.core.knobs.model import COMPILE_BUDGET_SECONDS
from autotune.core.outcome import Completed, Outcome

BUDGET_BY_STEP = ((0.02, 60.0), (0.5, 90.0))
"""``(step seconds, budget seconds)``: the budget for tasks whose baseline step takes less."""
SLOW_STEP_BUDGET = 150.0
"""The budget for longer steps: each generation of the proof runs a few of them."""
UNKNOWN_STEP_BUDGET = 90.0
TRAINING_SHARE, MAX_TRAINING_BUDGET = 0.02, 2 * COMPILE_BUDGET_SECONDS
"""Share of the announced training time that tuning may take, and the most seconds it may add up to."""


def default_budget(train_seconds: float | None, outcome: Outcome | None = None) -> float:
    """Seconds for the whole run, where the user gives no budget.

    Args:
        train_seconds: the length of the training, where the user gives it.
        outcome: the outcome of the baseline's trial, once it has ended.
    """
    measured = outcome.measurement if isinstance(outcome, Completed) else None
    found = UNKNOWN_STEP_BUDGET
    if measured is not None:
        budgets = (budget for seconds, budget in BUDGET_BY_STEP if measured.step_seconds < seconds)
        found = next(budgets, SLOW_STEP_BUDGET)
    return max(found, min(MAX_TRAINING_BUDGET, TRAINING_SHARE * (train_seconds or 0.0)))
