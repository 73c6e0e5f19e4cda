"""What one trial has measured of each part of a training step. `autotune.trial.child.inspecting` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Operator:
    """All calls of one operator in one step, without the update's.

    Attributes:
        name: as PyTorch's profiler has it.
        calls: in the step.
        flops: operations of matrix products and convolutions; 0 of all others.
        bytes: of all tensors read and written.
        seconds: its own, under the profiler.
    """

    name: str
    calls: int
    flops: float
    bytes: float
    seconds: float


@dataclass(frozen=True)
class SlowOperator:
    """An operator with one set of input shapes: calls and own seconds in one step."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    calls: float
    seconds: float


@dataclass(frozen=True)
class LoaderAlone:
    """The loader without training, for one batch.

    Attributes:
        batch_seconds: wall time.
        epoch_seconds: from the begin of an epoch to its first batch.
        main_busy: share of the time that the training process ran on a CPU; what others made it wait is left out.
        worker_busy: the same of its workers.
        storage_bytes: read from storage, not from the page cache.
    """

    batch_seconds: float
    epoch_seconds: float
    main_busy: float
    worker_busy: float
    storage_bytes: float


@dataclass(frozen=True)
class Sizes:
    """Bytes of one process.

    Attributes:
        peak: resident on the host, or allocated on a device.
        activations: what forward passes keep for the backward pass.
        reserved: what PyTorch's allocator holds of the device, or 0.
        split: of these, unused parts of blocks that are in use elsewhere: only requests that fit get them.
    """

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int
    batch: int
    peak: int
    reserved: int = 0
    split: int = 0

    @property
    def other(self) -> int:
        """Python, libraries, the dataset, and temporary tensors."""
        known = self.parameters + self.gradients + self.optimizer_state + self.activations + self.batch
        return max(0, self.peak - known)


@dataclass(frozen=True)
class Inspection:
    """Seconds are those of one step, each part by itself.

    Attributes:
        call_seconds: what calling an operator costs that has nothing to compute.
        exchange_seconds: None for a single process.
        copy_seconds: of a batch to the device; None where there is none.
        loader: None where nobody knows it.
        batches: forward and backward pass of a batch, and of a quarter of it, in turns.
    """

    step_seconds: float
    update_seconds: float
    exchange_seconds: float | None
    copy_seconds: float | None
    call_seconds: float
    operators: tuple[Operator, ...]
    slowest: tuple[SlowOperator, ...]
    loader: LoaderAlone | None
    sizes: Sizes
    batches: tuple[tuple[float, float], ...]

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Inspection:
        """From the plain data that a trial sends."""
        seconds = found["seconds"]
        sizes = {name: int(found.get(name, 0)) for name in Sizes.__dataclass_fields__}
        slowest = (
            SlowOperator(row["name"], tuple(map(tuple, row["shapes"])), row["calls"], row["seconds"])
            for row in found["slowest"]
        )
        return cls(
            step_seconds=found["step_seconds"],
            update_seconds=found["update_seconds"],
            exchange_seconds=found["exchange_seconds"],
            copy_seconds=found["copy_seconds"],
            call_seconds=found["call_seconds"],
            operators=tuple(
                Operator(name, seconds=seconds.get(name, 0.0), **own) for name, own in found["operators"].items()
            ),
            slowest=tuple(slowest),
            loader=LoaderAlone(**found["loader"]) if found["loader"] is not None else None,
            sizes=Sizes(**sizes),
            batches=tuple((full, quarter) for full, quarter in found["batches"]),
        )
