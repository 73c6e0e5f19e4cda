"""What the user asked of a tuning run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.knobs.knob import LEVELS, Context
from autotune.knobs.pins import check_names, check_pins
from autotune.knobs.space import Space, build
from autotune.knobs.table import KNOB_NAMES
from autotune.near import did_you_mean
from autotune.stats.outcome import Outcome
from autotune.tuning.budget import default_budget

LEAST_BUDGET = 5.0
FOLLOWERS = {
    "num_workers": ("prefetch_factor",),
    "processes": ("threads", "backend", "batch_size"),
}
"""Knobs that cannot stay where they are when another moves: ``--only`` frees them too."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user asked for."""

    profile: Path | None = None
    """Where to write; by default ``profiles/<machine key>/<target>.yaml``."""
    level: str | None = None
    """The level to recommend."""
    budget: float | None = None
    """Seconds, from the start of the call to the written profile; by default `autotune.tuning.budget.default_budget`."""
    seed: int = 0
    resume: bool = False
    train_seconds: float | None = None
    fix: Mapping[str, Any] | None = None
    """Knobs pinned to a value."""
    only: Sequence[str] = ()
    """Knobs that may move; all of them if empty."""

    def seconds(self, outcome: Outcome | None = None) -> float:
        """The budget; if none was given, what is usual for a baseline's trial that ended in ``outcome``."""
        return self.budget or default_budget(self.train_seconds, outcome)

    def __post_init__(self) -> None:
        """Raise `UsageError` for what cannot work on any machine."""
        if self.budget is not None and self.budget < LEAST_BUDGET:
            raise UsageError(f"--budget {self.budget:g}s is too short: give at least {LEAST_BUDGET:g}s")
        if self.level is not None and self.level not in LEVELS:
            raise UsageError(f"--level {self.level}: levels are {', '.join(LEVELS)}{did_you_mean(self.level, LEVELS)}")
        check_names(self.only, "--only")
        check_pins(self.fix or {})

    def spaces(self, context: Context) -> dict[str, Space]:
        """The space of every level, lowest first, with the user's pins."""
        fixed = dict(self.fix or {})
        if self.only:
            kept = context.baseline.as_dict()
            free = {follower for name in self.only for follower in (name, *FOLLOWERS.get(name, ()))}
            fixed |= {name: kept[name] for name in KNOB_NAMES if name not in free and name not in fixed}
        return {level: build(context, level, fixed) for level in LEVELS}
