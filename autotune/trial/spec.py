"""What goes to the child and what comes back, as JSON-able frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from autotune.core.cluster import endpoint
from autotune.core.measurement import Measurement
from autotune.core.settings import Settings

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
    inspect: str = ""
    """Measure by this function in place of blocks: ``module:name`` of a generator that is called with the warm loop
    and the seconds of a step. What it returns is `TrialReport.inspection`. Empty for blocks."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialSpec:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        parts = {"settings": Settings.from_dict(data["settings"]), "without": Without(data["without"])}
        return cls(**{**data, **parts})


@dataclass(frozen=True)
class Rendezvous:
    """Where the ranks of a trial on several machines meet, and which of the machines this one is.

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
    def from_dict(cls, data: Mapping[str, Any]) -> Rendezvous:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        return cls(**{**data, "ports": tuple(data["ports"])})

    def init_method(self, attempt: int) -> str:
        """As ``init_process_group`` takes it."""
        return f"tcp://{endpoint(self.host, self.ports[attempt])}"

    def ranks(self, world: int) -> range:
        """This machine's among ``world`` ranks."""
        local = world // self.nnodes
        return range(local * self.node, local * (self.node + 1))


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """What the leader of a trial is told.

    Attributes:
        task: the task file.
        folder: the trial's own.
        origin: the user's working folder, which ``folder`` mirrors.
        seed: of data order and weights.
        spec: the trial; None where a task is only described, or a script shows how it trains.
        binding: `autotune.core.binding.AffinityPlan` as text; empty where nothing is bound.
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
    rendezvous: Rendezvous | None = None
    script: Mapping[str, Any] | None = None
    ranks: int = 1

    @property
    def world_size(self) -> int:
        """How many ranks there are, on all machines."""
        return self.spec.settings.processes if self.spec is not None else self.ranks

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialRequest:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        spec, rendezvous = data["spec"], data["rendezvous"]
        parts = {
            "spec": TrialSpec.from_dict(spec) if spec is not None else None,
            "rendezvous": Rendezvous.from_dict(rendezvous) if rendezvous is not None else None,
        }
        return cls(**{**data, **parts})


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
    inspection: Mapping[str, Any] | None = None
    """What `TrialSpec.inspect` has found, as plain data."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrialReport:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        measured = data["measurement"]
        parts = {
            "measurement": Measurement.from_dict(measured) if measured is not None else None,
            "losses": tuple(data["losses"]),
            "not_applied": tuple((knob, reason) for knob, reason in data["not_applied"]),
            "notes": tuple(data["notes"]),
        }
        return cls(**{**data, **parts})
