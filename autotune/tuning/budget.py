"""The default length of a tuning run."""

from __future__ import annotations

from autotune.knobs.compile import COMPILE_BUDGET_SECONDS, COMPILES_IN_A_RUN
from autotune.stats.outcome import Completed, Outcome

BUDGET_BY_STEP = ((0.02, 60.0), (0.5, 90.0))
"""``(step seconds, budget seconds)``: the budget for tasks whose baseline step takes less."""
SLOW_STEP_BUDGET = 150.0
"""The budget for longer steps: each generation of the proof runs a few of them."""
UNKNOWN_STEP_BUDGET = 90.0
TRAINING_SHARE, MAX_TRAINING_BUDGET = 0.02, 2 * COMPILE_BUDGET_SECONDS
"""Share of the announced training time that tuning may take, and the most seconds it may add up to."""
FIRST_COMPILE_SECONDS, FIRST_COMPILE_SHARE = 150.0, 0.4
"""Longest that the first compile may take: in seconds, and as a share of a budget that the user gave."""


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


def first_compile_seconds(given: float | None) -> float:
    """How long the first compile may take, with the budget that the user gave, if any."""
    return FIRST_COMPILE_SECONDS if given is None else FIRST_COMPILE_SHARE * given


def compiled_budget(budget: float, took: float, *, worth: bool) -> float:
    """Seconds for the whole run once the first compile is over.

    Args:
        budget: without compile.
        took: seconds of the first compile.
        worth: whether the compiled model is no slower, so that other modes are worth their time.
    """
    longer = budget + took * (1 + worth * COMPILES_IN_A_RUN)
    return max(budget, min(MAX_TRAINING_BUDGET, longer))
