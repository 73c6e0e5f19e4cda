"""Facts of the user's task, reported by a child that loaded it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from autotune.decoding import Scalar, pattern

Digests = tuple[Annotated[str, pattern(r"[0-9a-f]{16}", "16 hexadecimal digits")], ...]


@dataclass(frozen=True)
class Fingerprint:
    """Digests of what tuning has compared with plain PyTorch: only that is changed in training.

    They hold no names, code or data.

    Attributes:
        models: layers of PyTorch's own, shapes and types of parameters, and which of them share memory.
        optimizers: class and options.
        loaders: classes and code of data set, collate function and sampler.
    """

    models: Digests = ()
    optimizers: Digests = ()
    loaders: Digests = ()

    def with_one(self, kind: str, digest: str) -> "Fingerprint":
        """Return this with one more digest of ``kind``."""
        known: tuple[str, ...] = getattr(self, kind)
        return self if digest in known else replace(self, **{kind: (*known, digest)})


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a process that trains, in bytes; 0 if it is not known.

    Attributes:
        fixed: what it held of the host's before the first step, gradients and optimizer states: the same for any batch.
        peak: the most that it held of the host's.
        workers: what its loader workers hold beside that.
        gpu: the most that PyTorch reserved on its GPU.
    """

    fixed: int = 0
    peak: int = 0
    workers: int = 0
    gpu: int = 0

    def host(self, processes: int) -> int:
        """Return what so many processes of this kind hold."""
        return processes * (self.peak + self.workers)


@dataclass(frozen=True)
class LeftOut:
    """One value of a knob that is not tried, and why."""

    knob: str
    value: Scalar
    reason: str


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """Facts about one task file or script, read off the real model, dataset and optimizer."""

    name: str
    """The file's stem: the target's name in profiles."""
    samples: int | None
    """``len(dataset)``; None for an iterable dataset without a length."""
    iterable: bool
    parameters: int
    has_convolutions: bool
    """Convolutions that a knob acts on: those over images, and on CUDA those over volumes too."""
    has_batch_norm: bool
    optimizer: str
    optimizer_impls: tuple[str, ...]
    """Implementations that this optimizer class accepts on this device, ``default`` first."""
    sample_bytes: int
    """Tensor bytes of the largest sample looked at."""
    copied_bytes: int = 0
    """Bytes of Python objects that the data set holds: each loader worker comes to hold a copy."""
    sample_variation: float
    """Largest over median sample size; 1.0 for fixed shapes."""
    batch_shapes: int = 1
    """How many different shapes a few batches of as many samples had; 1 if that was not looked at, as in scripts."""
    unit: str
    """What rates count: ``samples``, or ``items`` if the task counts its own."""
    device: str
    """``cpu`` or ``cuda``."""
    current: Mapping[str, Any]
    """``CURRENT`` of the task file, checked."""
    why_not_several: str | None = None
    """Why several training processes cannot be used, or None."""
    warnings: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    """What a script decides itself. A value of None stands for all but the baseline's."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """What in the user's code or environment fixes one of these, by knob: other values are tried for advice."""

    script: str | None = None
    """What the training steps of an unmodified script are counted by; None for a task file."""
    project: str = ""
    """The project of an unmodified script."""
    ranked: bool = False
    """True for a script that finds the variables that torchrun sets, also as one process."""
    skip: int = 0
    """How many loaders a script iterates before its training loader."""
    no_fork_reason: str | None = None
    """Why a script cannot be forked where it trains, so that each trial runs it from its start; None if it can."""
    compared: Fingerprint = field(default_factory=Fingerprint)
    """Fingerprints of the task's model, optimizer and loader."""

    def why_left_out(self, knob: str, value: Any, own: Any) -> str | None:
        """Return why ``knob`` cannot have ``value``; None if it can. ``own``, the baseline's value, it always can."""
        found = (each for each in self.left_out if each.knob == knob and value != own and each.value in (None, value))
        return next((each.reason for each in found), None)
