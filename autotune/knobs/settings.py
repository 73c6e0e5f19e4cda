"""The knob table, and `Settings`: one complete choice, a value for every knob of the table."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any

from autotune.knobs.allocator import ALLOCATOR, MALLOC
from autotune.knobs.backend import BACKEND, PROCESSES
from autotune.knobs.binding import BINDING
from autotune.knobs.compile import COMPILE
from autotune.knobs.convolutions import CHANNELS_LAST, CUDNN_BENCHMARK
from autotune.knobs.knob import Knob
from autotune.knobs.loader import BATCH_SIZE, NUM_WORKERS, PIN_MEMORY, PREFETCH_FACTOR, WORKER_START
from autotune.knobs.optimizer_impl import OPTIMIZER_IMPL
from autotune.knobs.precision import MATMUL_PRECISION, PRECISION
from autotune.knobs.threads import INTEROP_THREADS, OMP_WAIT, THREADS
from autotune.knobs.worker_threads import WORKER_THREADS

KNOBS: tuple[Knob, ...] = (
    PROCESSES,
    THREADS,
    INTEROP_THREADS,
    OMP_WAIT,
    BACKEND,
    BINDING,
    NUM_WORKERS,
    PREFETCH_FACTOR,
    WORKER_START,
    WORKER_THREADS,
    PIN_MEMORY,
    BATCH_SIZE,
    CHANNELS_LAST,
    OPTIMIZER_IMPL,
    ALLOCATOR,
    MALLOC,
    CUDNN_BENCHMARK,
    COMPILE,
    PRECISION,
    MATMUL_PRECISION,
)
"""The knob table: the order of settings in profiles and reports, and that in which changes are made."""
BY_NAME: dict[str, Knob] = {knob.name: knob for knob in KNOBS}
KNOB_NAMES: tuple[str, ...] = tuple(BY_NAME)

if TYPE_CHECKING:

    class _Values:
        """A frozen dataclass with a field for each knob, in the order of the table. Types are declared for knobs
        that depend on each other, since code names them."""

        def __init__(self, **values: Any) -> None: ...

        processes: int
        threads: int
        backend: str | None
        binding: str
        num_workers: int
        prefetch_factor: int | None
        batch_size: int

        def __getattr__(self, name: str) -> Any: ...

else:

    def _make_canonical(settings: Settings) -> None:
        for knob in KNOBS:
            if not knob.applies(settings):
                object.__setattr__(settings, knob.name, knob.neutral)
            elif getattr(settings, knob.name) is None:
                object.__setattr__(settings, knob.name, knob.usual)

    _FIELDS = [(knob.name, Any, field(default=knob.neutral)) for knob in KNOBS]
    _Values = make_dataclass(
        "_Values", _FIELDS, frozen=True, kw_only=True, namespace={"__post_init__": _make_canonical}
    )


class Settings(_Values):
    """A value for every knob, hashable and canonical: settings that act the same compare equal.

    ``batch_size`` is per process; ``global_batch`` is the batch of the user's own loader, which all processes share.
    ``docs/knobs.md`` says what each field means.
    """

    @property
    def global_batch(self) -> int:
        """Return the samples of one batch, over all processes."""
        return self.processes * self.batch_size

    @property
    def inherited(self) -> tuple[Any, ...]:
        """Return the values that a process must start with: a running one, or its fork, cannot take them any more."""
        return tuple(getattr(self, knob.name) for knob in KNOBS if knob.inherited)

    @property
    def start_part(self) -> tuple[Any, ...]:
        """Return the values that need a process of their own: all others can be changed in a running training."""
        return tuple(getattr(self, knob.name) for knob in KNOBS if not knob.live)

    def but(self, **changes: Any) -> Settings:
        """Return these settings with ``changes``, canonical again."""
        return Settings(**(vars(self) | changes))

    def as_dict(self) -> dict[str, Any]:
        """Return a flat ``{knob: value}`` in the order of the knob table, ready for YAML and JSON."""
        return dict(vars(self))

    def difference(self, other: Settings) -> dict[str, tuple[Any, Any]]:
        """Return ``{knob: (mine, theirs)}`` for every knob that differs."""
        mine, theirs = self.as_dict(), other.as_dict()
        return {name: (mine[name], theirs[name]) for name in KNOB_NAMES if mine[name] != theirs[name]}
