"""Records of a diagnosis: what one trial measures of a training step, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from autotune.knobs.settings import Settings
from autotune.stats.proof import Proof


class Part(str, Enum):
    """A part of the step, or another cause of its length: what a bound is about."""

    LOADER = "loader"
    UPDATE = "update"
    EXCHANGE = "exchange"
    LOOP = "loop"
    """The user's own code between the other parts."""
    PASSES = "passes"
    """From the model's call to the end of the backward pass."""
    THREADS = "threads"
    OVERHEAD = "overhead"
    """What a step takes whatever its batch."""
    BANDWIDTH = "memory bandwidth"


CLOCKED = (Part.LOADER, Part.UPDATE, Part.EXCHANGE, Part.LOOP, Part.PASSES)
"""Parts that make up a whole step."""


class Bound(str, Enum):
    """Bounds of a step."""

    MAIN_PROCESS = "input-bound: augmentation in the main process"
    WORKERS = "input-bound: workers"
    DISK = "input-bound: disk"
    SLOW_SOURCE = "input-bound: slow source"
    UPDATE = "update-bound"
    EXCHANGE = "exchange-bound"
    LOOP = "loop-bound"
    THREADS = "oversubscribed by threads"
    OVERHEAD = "overhead-bound"
    COMPUTE = "compute-bound"
    BANDWIDTH = "memory-bandwidth-bound"
    BUSY = "cannot tell: neighbours"
    FEW_STEPS = "cannot tell: few steps"
    UNEXPLAINED = "cannot tell: unexplained"
    """No cause explains clearly more of the passes than the others."""

    @property
    def told(self) -> bool:
        """False if it cannot be told what bounds the step."""
        return self not in (Bound.BUSY, Bound.FEW_STEPS, Bound.UNEXPLAINED)


@dataclass(frozen=True)
class Place:
    """The place where a part spends most of its time: the user's line seen most often, and the function's share."""

    function: str
    file: str
    line: int
    share: float


@dataclass(frozen=True)
class Roofline:
    """Seconds of the passes of one step, by what bounds them (Williams, Waterman, Patterson 2009).

    Attributes:
        overhead: seconds that calling operators takes, whatever they compute.
        compute, bandwidth: seconds of operators that computing or memory traffic bounds, without the calls.
        other: seconds of operators that neither explains.
    """

    overhead: float = 0.0
    compute: float = 0.0
    bandwidth: float = 0.0
    other: float = 0.0


@dataclass(frozen=True)
class Inspection:
    """One trial's look at a training step.

    Attributes:
        blocks: seconds of each part in each block of steps.
        step_seconds: wall time of a step.
        items: of a step, of all processes.
        lost: share of the processors' time that others took from the training, 0..1.
        neighbours: processors that others kept busy.
        places: where each part spends most of its time, as far as that is the user's code.
        loader: why the loader takes as long as it does.
    """

    blocks: tuple[Mapping[Part, float], ...]
    step_seconds: float
    items: float
    lost: float = 0.0
    neighbours: float = 0.0
    places: Mapping[Part, Place] = field(default_factory=dict)
    loader: Bound = Bound.MAIN_PROCESS
    roofline: Roofline = Roofline()


@dataclass(frozen=True)
class Verdict:
    """The bound of the step, and what else takes much of it.

    Attributes:
        bound: what bounds it, or why that cannot be told.
        part: that takes most of the step.
        shares: of the step's time by part; together 1.
        others: parts that surely take much of the step, too.
    """

    bound: Bound
    part: Part
    shares: Mapping[Part, float]
    others: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """Why a training step takes as long as it does.

    Attributes:
        settings: the user's.
        unit: what rates count.
        rate: items per second, of all processes.
        step_seconds: of a step at this rate.
        verdict: what bounds the step.
        bounds: how many times as fast the step could be at most without a part, by part.
        inspection: what one trial measured of the parts.
        neighbours: processors that others kept busy.
        threads: of each process, that fit this machine beside what runs there; None if today's do.
        notes: what the user should know.
    """

    settings: Settings
    unit: str
    rate: float
    step_seconds: float
    verdict: Verdict
    bounds: Mapping[Part, Proof]
    inspection: Inspection
    neighbours: float
    threads: int | None = None
    notes: tuple[str, ...] = ()
