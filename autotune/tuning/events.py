"""The state of a tuning run, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.knobs.settings import Settings
from autotune.stats.proof import Proof


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """The state of a tuning run. Seconds since its start; rates in ``unit`` per second, None until measured."""

    stage: str
    """What is going on, in plain words: ``baseline``, ``searching``, ``race``, ``proof``..."""
    baseline: Settings
    unit: str
    trying: Settings | None = None
    trials: int = 0
    baseline_rate: float | None = None
    best: Settings | None = None
    gain: Proof | None = None
    """How much faster `best` is; None until measured with an interval."""
    elapsed: float = 0.0
    budget: float = 0.0
    """Of the whole run; 0 if it is not known."""
    failures: int = 0
    last_failure: str = ""
    rounds: Mapping[str, int] = field(default_factory=dict)
    """Rounds finished by each candidate of a race or proof."""


Observer = Callable[..., None]
"""Called with the fields of `RunProgress` that have changed, by name."""


def ignore(**changes: Any) -> None:
    """Do nothing."""
