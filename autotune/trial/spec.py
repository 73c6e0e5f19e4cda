"""What goes to the child and what comes back, as JSON-able frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autotune.core.cluster import endpoint
from autotune.core.measurement import Measurement
from autotune.core.settings import Settings

CHECK_STEPS = 8
"""Optimizer steps at the start of every trial whose losses are compared with the fp32 baseline."""


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

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialSpec:
        """The inverse of `as_dict`."""
        values = dict(data)
        values["settings"] = Settings.from_dict(values["settings"])
        return cls(**values)


@dataclass(frozen=True)
class Meeting:
    """One trial on several machines: where its ranks meet, and which of the machines this one is.

    Attributes:
        host: an address of the machine that holds rank 0.
        ports: free there: for the first try, and for the second where parameters turn out to be unused.
        nnodes: how many machines.
        node: this one's number among them; machine 0 has the lowest ranks.
        interface: the network interface that leads to the others; None where it is not known.
    """

    host: str
    ports: tuple[int, int]
    nnodes: int
    node: int = 0
    interface: str | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Meeting:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        return cls(**{**data, "ports": tuple(data["ports"])})

    def init_method(self, attempt: int) -> str:
        """As ``init_process_group`` takes it."""
        return f"tcp://{endpoint(self.host, self.ports[attempt])}"


@dataclass(frozen=True, kw_only=True)
class TrialReport:
    """What a child says of its own trial. Exactly one of ``measurement`` and ``error`` is set."""

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

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialReport:
        """The inverse of `as_dict`."""
        values = dict(data)
        if values.get("measurement") is not None:
            values["measurement"] = Measurement.from_dict(values["measurement"])
        values["losses"] = tuple(values.get("losses", ()))
        values["not_applied"] = tuple((knob, reason) for knob, reason in values.get("not_applied", ()))
        values["notes"] = tuple(values.get("notes", ()))
        return cls(**values)
