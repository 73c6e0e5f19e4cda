"""What goes to the child and what comes back, as JSON-able frozen data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from autotune.knobs.settings import Settings
from autotune.stats.measurement import Measurement

CHECK_STEPS = 8
"""Optimizer steps at the start of every trial whose losses are compared with the fp32 baseline."""


class Without(str, Enum):
    """The part of a training step that a trial leaves out, to measure what the step takes without it."""

    NOTHING = ""
    LOADER = "loader"
    """Every step trains on the first batch."""
    UPDATE = "update"
    """The optimizer's step changes nothing."""
    EXCHANGE = "exchange"
    """Gradients stay in each process."""
    SAMPLES = "samples"
    """Every step trains on the first quarter of the first batch."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One trial: which settings, how long, with which seed."""

    settings: Settings
    seed: int = 0
    min_seconds: float = 0.3
    """Least measured time after warm-up."""
    max_seconds: float = 1.0
    """Most measured time after warm-up."""
    target_error: float = 0.015
    """Stop at this relative standard error."""
    warmup_seconds: float = 2.0
    """Cap on the warm-up; past it the trial measures anyway and says ``no_steady_state``."""
    give_up_below: float = 0.0
    """Stop early, after warm-up, once the rate is clearly below this (items per second)."""
    resident: bool = False
    """Stay after warm-up and measure a block whenever the parent asks (race and proof)."""
    without: Without = Without.NOTHING
    """The part that every step leaves out."""
    own: Settings | None = None
    """The user's own settings: of a script, knobs that are equal to them are left alone."""
    first_steps: str = ""
    """File of the baseline's first steps: record them if it is not there, else compare the trial's own with them."""
    inspect: str = ""
    """Measure by this function in place of blocks: ``module:name`` of a generator that is called with the warm loop
    and the seconds of a step. What it returns is `TrialReport.inspection`. Empty for blocks."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialSpec:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        own = Settings.from_dict(data["own"]) if data["own"] is not None else None
        parts = {"settings": Settings.from_dict(data["settings"]), "without": Without(data["without"])}
        return cls(**{**data, **parts, "own": own})


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """What the leader of a trial is told.

    Attributes:
        task: the task file.
        folder: the trial's own.
        origin: the user's working folder, which ``folder`` mirrors.
        seed: of data order and weights.
        spec: the trial; None where a task is only described, or a script shows how it trains.
        binding: `autotune.knobs.affinity.AffinityPlan` as text; empty where nothing is bound.
        rendezvous: where the ranks of several machines meet; None where all are here.
        script: ``{script, frontier}`` of an unmodified script, whose frontier is known; None for a task.
        ranks: how many there are of a script that shows how it trains.
    """

    task: str
    folder: str
    origin: str
    seed: int
    spec: TrialSpec | None = None
    binding: str = ""
    script: Mapping[str, Any] | None = None
    ranks: int = 1

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self.spec.settings.processes if self.spec is not None else self.ranks

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialRequest:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        spec = data["spec"]
        return cls(**{**data, "spec": TrialSpec.from_dict(spec) if spec is not None else None})


@dataclass(frozen=True, kw_only=True)
class TrialReport:
    """What a child reports of its own trial. One of ``measurement``, ``error`` and ``differences`` is set."""

    measurement: Measurement | None = None
    losses: tuple[float, ...] = ()
    finite: bool = True
    error: str | None = None
    """Short text of the exception that ended it."""
    error_type: str | None = None
    traceback: str = ""
    not_applied: tuple[tuple[str, str], ...] = ()
    """``(knob, reason)`` for everything asked that did not take effect."""
    notes: tuple[str, ...] = ()
    differences: tuple[tuple[str, str], ...] | None = None
    """``(what, how)`` of first steps that were compared; empty if they are the same, or were recorded."""
    draws: bool = False
    """True if reading samples draws random numbers."""
    inspection: Mapping[str, Any] | None = None
    """What `TrialSpec.inspect` has found, as plain data."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialReport:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        measured = data["measurement"]
        parts = {
            "measurement": Measurement.from_dict(measured) if measured is not None else None,
            "losses": tuple(data["losses"]),
            "not_applied": _pairs(data["not_applied"]),
            "notes": tuple(data["notes"]),
            "differences": _pairs(data["differences"]) if data["differences"] is not None else None,
        }
        return cls(**{**data, **parts})


def _pairs(data: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((first, second) for first, second in data)
