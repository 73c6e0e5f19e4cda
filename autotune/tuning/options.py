"""The user's options for a tuning run, and its budget if none was given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from autotune import decoding, project
from autotune.durations import check_budget
from autotune.errors import UsageError, did_you_mean
from autotune.knobs.compile import COMPILE_BUDGET_SECONDS
from autotune.knobs.knob import Context
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import KNOB_NAMES
from autotune.knobs.space import Space, build
from autotune.knobs.stated import check_fixed, check_fixed_on, check_names
from autotune.probes.facts import Inventory
from autotune.stats.outcome import Outcome

MOST_SEED = 2**32 - 1
"""NumPy takes no larger one."""
BUDGET_BY_STEP = ((0.02, 60.0), (0.5, 90.0), (math.inf, 150.0))
"""``(step seconds, budget seconds)`` if the baseline's step takes less: each replicate of a proof makes a few steps."""
UNKNOWN_STEP_BUDGET = 90.0
TRAINING_SHARE, MAX_TRAINING_BUDGET = 0.02, 2 * COMPILE_BUDGET_SECONDS
"""Share of the announced training time that tuning may take, and the most seconds it may add up to."""
FOLLOWERS = {
    "num_workers": ("prefetch_factor",),
    "processes": ("threads", "backend", "batch_size"),
}
"""Knobs that cannot stay where they are when another moves: ``--only`` frees them too."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The user's options, as `autotune.tuning.run.tune` explains them. The budget is in seconds, from the start of the
    call to the written profile; what a script holds before or between training steps is not seen in its memory."""

    profile: Path | None = None
    name: str | None = None
    level: str | None = None
    budget: float | None = None
    seed: int = 0
    resume: bool = False
    train_seconds: float | None = None
    max_memory: int | None = None
    max_gpu_memory: int | None = None
    fix: Mapping[str, Any] | None = None
    only: Sequence[str] = ()
    sampler: str | Callable[..., Any] | None = None

    def seconds(self, outcome: Outcome | None = None) -> float:
        """Return the seconds for the whole run; if the user gave none, by the baseline's trial and the training ahead.

        Args:
            outcome: of the baseline's trial; None before it has ended.
        """
        if self.budget is not None:
            return self.budget
        usual = UNKNOWN_STEP_BUDGET
        if outcome is not None and outcome.measurement is not None:
            step = outcome.measurement.step_seconds
            usual = next(budget for most, budget in BUDGET_BY_STEP if step < most)
        return max(usual, min(MAX_TRAINING_BUDGET, TRAINING_SHARE * (self.train_seconds or 0.0)))

    @property
    def memory(self) -> tuple[int | None, int | None]:
        """Return the bytes that training may hold, of the host and of each GPU."""
        return self.max_memory, self.max_gpu_memory

    def __post_init__(self) -> None:
        """Raise `UsageError` for what cannot work on any machine."""
        kinds = get_type_hints(Options)
        try:
            for name in ("name", "level", "budget", "seed", "resume", "train_seconds", "max_memory", "max_gpu_memory"):
                given = getattr(self, name)
                plain = given.item() if hasattr(given, "item") else given  # a NumPy number
                object.__setattr__(self, name, decoding.build(kinds[name], plain, (name,)))
            decoding.build(dict[str, Any], self.fix or {}, ("fix",))
            decoding.build(tuple[str, ...], list(self.only), ("only",))
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from None
        if self.budget is not None:
            check_budget(self.budget)
        if self.train_seconds is not None and not self.train_seconds > 0:
            raise UsageError(f"--train-time {self.train_seconds:g}s: must be a positive duration")
        if not (isinstance(self.seed, int) and 0 <= self.seed <= MOST_SEED):
            raise UsageError(f"--seed {self.seed}: must be a whole number from 0 to {MOST_SEED}")
        if self.level is not None and self.level not in LEVELS:
            raise UsageError(f"--level {self.level}: levels are {', '.join(LEVELS)}{did_you_mean(self.level, LEVELS)}")
        for option, most in zip(("--max-memory", "--max-gpu-memory"), self.memory, strict=True):
            if most is not None and not most > 0:
                raise UsageError(f"{option} {most}: must be a positive number of bytes")
        if isinstance(self.sampler, str):
            from autotune.search.sampler import loaded  # imports Optuna

            loaded(self.sampler)
        if self.name is not None and self.name != project.safe_name(self.name):
            raise UsageError(f"--name {self.name!r}: use letters, digits, '-', '_' and inner dots, 100 bytes at most")
        check_names(self.only, "--only")
        check_fixed(self.fix or {}, self.only, self.level)

    def check_on(self, inventory: Inventory) -> None:
        """Raise `UsageError` for what cannot act on this machine."""
        on_host = inventory.device.on_host
        if self.max_gpu_memory is not None and on_host:
            raise UsageError("--max-gpu-memory: training has no GPU here")
        if tuple(self.only) == ("compile",) and on_host and self.train_seconds is None:
            raise UsageError("--only compile: on CPUs it is tried with --train-time only, such as --train-time 10h")
        check_fixed_on(inventory, self.fix or {})

    def spaces(self, context: Context) -> dict[str, Space]:
        """Return the space of every level, lowest first, with the user's fixed knobs."""
        fixed = dict(self.fix or {})
        if self.only:
            kept = context.baseline.as_dict()
            free = {follower for name in self.only for follower in (name, *FOLLOWERS.get(name, ()))}
            fixed |= {name: kept[name] for name in KNOB_NAMES if name not in free and name not in fixed}
        return {level: build(context, level, fixed) for level in LEVELS}
