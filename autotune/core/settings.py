"""`Settings`: one complete choice, a value for every knob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from autotune.core.backends import BACKENDS as ROWS
from autotune.core.errors import UsageError

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
COMPILE_MODES = ("off", "default", "reduce-overhead", "max-autotune")
OPTIMIZER_IMPLS = ("default", "foreach", "fused")
ALLOCATORS = ("default", "jemalloc", "tcmalloc")
BACKENDS = tuple(ROWS)
BINDINGS = ("none", "cores", "numa")
CATEGORIES: Mapping[str, tuple[Any, ...]] = {
    "backend": BACKENDS,
    "data_parallel": (False, True),
    "binding": BINDINGS,
    "persistent_workers": (False, True),
    "pin_memory": (False, True),
    "channels_last": (False, True),
    "optimizer_impl": OPTIMIZER_IMPLS,
    "allocator": ALLOCATORS,
    "cudnn_benchmark": (False, True),
    "compile": COMPILE_MODES,
    "precision": PRECISIONS,
}
"""Every value that a knob of words or switches may take anywhere; all other knobs count something."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A value for every knob, hashable and canonical: settings that act the same compare equal.

    ``batch_size`` is per process; ``global_batch`` is the batch of the user's own loader, which all processes share.
    """

    processes: int = 1
    threads: int = 1
    """Intra-op threads of each process."""
    interop_threads: int = 1
    backend: str | None = None
    """Gradient exchange between processes; None for one process."""
    data_parallel: bool = False
    """One process drives every GPU through `torch.nn.DataParallel`, which splits each batch between them."""
    binding: str = "none"
    """What each process is bound to, see `autotune.core.binding`."""
    num_workers: int = 0
    """Loader workers of each process."""
    prefetch_factor: int | None = None
    """Batches each worker prepares ahead; None without workers."""
    persistent_workers: bool = False
    """The user's own: workers that outlive an epoch do not see a dataset that the script changes between epochs."""
    pin_memory: bool = False
    batch_size: int = 1
    channels_last: bool = False
    optimizer_impl: str = "default"
    allocator: str = "default"
    cudnn_benchmark: bool = False
    compile: str = "off"
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.num_workers == 0:
            object.__setattr__(self, "prefetch_factor", None)
            object.__setattr__(self, "persistent_workers", False)
        elif self.prefetch_factor is None:
            object.__setattr__(self, "prefetch_factor", 2)
        if self.processes == 1:
            object.__setattr__(self, "backend", None)
        else:
            object.__setattr__(self, "data_parallel", False)
            if self.backend is None:
                object.__setattr__(self, "backend", "gloo")

    @property
    def global_batch(self) -> int:
        """Samples of one batch, over all processes."""
        return self.processes * self.batch_size

    def but(self, **changes: Any) -> Settings:
        """These settings with ``changes``, canonical again."""
        return Settings(**(vars(self) | changes))

    def as_dict(self) -> dict[str, Any]:
        """Flat ``{knob: value}`` in the order of the knob table, ready for YAML and JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """The inverse of `as_dict`, of older files too. Missing knobs take their neutral value.

        Raises:
            UsageError: a key is no knob.
        """
        values = without_accumulation(values)
        unknown = sorted(set(values) - set(KNOB_NAMES))
        if unknown:
            raise UsageError(f"unknown knob {unknown[0]!r}; knobs are: {', '.join(KNOB_NAMES)}")
        return cls(**values)

    def difference(self, other: Settings) -> dict[str, tuple[Any, Any]]:
        """``{knob: (mine, theirs)}`` for every knob that differs."""
        mine, theirs = self.as_dict(), other.as_dict()
        return {name: (mine[name], theirs[name]) for name in KNOB_NAMES if mine[name] != theirs[name]}


KNOB_NAMES: tuple[str, ...] = tuple(field.name for field in fields(Settings))


def without_accumulation(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` of a file of version 0.1, where ``accumulation`` was a knob: 1 changes nothing and is dropped.

    Raises:
        UsageError: it is anything else.
    """
    kept = dict(values)
    steps = kept.pop("accumulation", 1)
    if type(steps) is not int or steps != 1:
        raise UsageError("accumulation is no longer a knob; only 1 can be read")
    return kept
