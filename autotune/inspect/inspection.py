"""What one trial measures of a training step. `autotune.inspect.parts` makes it, in the trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


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
    BANDWIDTH = "memory bandwidth"


CLOCKED = (Part.LOADER, Part.UPDATE, Part.EXCHANGE, Part.LOOP, Part.PASSES)
"""Parts that make up a whole step."""


@dataclass(frozen=True)
class Place:
    """Where in the user's code a part spends most of its time.

    Attributes:
        function: its name; ``<module>`` for lines outside functions.
        file: its name, without folders.
        line: the one that was seen most often.
        share: of the part's time, 0..1.
    """

    function: str
    file: str
    line: int
    share: float


@dataclass(frozen=True)
class Loading:
    """How the loader spends its time.

    Attributes:
        main_busy: share of the time in the loader in which the training process ran on a CPU, 0..1. Time that it waited
            for a CPU does not count.
        worker_busy: the same of the loader's workers, over the whole step.
        storage_bytes: read from storage for a batch; what the page cache holds does not count.
    """

    main_busy: float = 0.0
    worker_busy: float = 0.0
    storage_bytes: float = 0.0


@dataclass(frozen=True)
class Operator:
    """All calls of an operator with one set of input shapes in one step, under PyTorch's profiler.

    Attributes:
        part: that calls it: the passes, the update or the loader.
        seconds: its own, without the operators that it calls.
        flops: operations of matrix products and convolutions; 0 for all others.
        bytes: read and written.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    part: Part
    calls: float
    seconds: float
    flops: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class Roofline:
    """What the forward and backward passes of one step are bound by (Williams, Waterman, Patterson 2009).

    Attributes:
        overhead: seconds that calling operators takes, whatever they compute.
        compute, bandwidth: seconds of operators that computing or memory traffic bounds, without the calls.
        matrix_share, copy_share: of this machine's rates, reached over the whole step, 0..1.
    """

    overhead: float = 0.0
    compute: float = 0.0
    bandwidth: float = 0.0
    matrix_share: float = 0.0
    copy_share: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all operators."""
        return self.overhead + self.compute + self.bandwidth


@dataclass(frozen=True)
class Sizes:
    """Bytes of one process.

    Attributes:
        step: most that one step holds beyond what was there before: activations, gradients, temporary tensors.
        peak: resident on the host, or allocated on a device.
    """

    parameters: int = 0
    optimizer_state: int = 0
    step: int = 0
    peak: int = 0


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
        slowest: operators, the slowest first.
    """

    blocks: tuple[Mapping[Part, float], ...]
    step_seconds: float
    items: float
    lost: float = 0.0
    neighbours: float = 0.0
    places: Mapping[Part, Place] = field(default_factory=dict)
    loading: Loading = Loading()
    roofline: Roofline = Roofline()
    slowest: tuple[Operator, ...] = ()
    sizes: Sizes = Sizes()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Inspection:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        shapes = [tuple(map(tuple, row["shapes"])) for row in data["slowest"]]
        slowest = zip(data["slowest"], shapes, strict=True)
        parts = {
            "blocks": tuple({Part(name): seconds for name, seconds in block.items()} for block in data["blocks"]),
            "places": {Part(name): Place(**place) for name, place in data["places"].items()},
            "loading": Loading(**data["loading"]),
            "roofline": Roofline(**data["roofline"]),
            "slowest": tuple(Operator(**{**row, "shapes": own, "part": Part(row["part"])}) for row, own in slowest),
            "sizes": Sizes(**data["sizes"]),
        }
        return cls(**{**data, **parts})
