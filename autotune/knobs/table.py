"""The knob table. Its order is the order of settings in profiles and reports, and that in which changes are made."""

from __future__ import annotations

from autotune.knobs.allocator import ALLOCATOR, MALLOC
from autotune.knobs.backend import BACKEND, PROCESSES
from autotune.knobs.binding import BINDING
from autotune.knobs.compile import COMPILE
from autotune.knobs.convolutions import CHANNELS_LAST, CUDNN_BENCHMARK
from autotune.knobs.knob import Knob
from autotune.knobs.loader import BATCH_SIZE, NUM_WORKERS, PIN_MEMORY, PREFETCH_FACTOR, WORKER_START
from autotune.knobs.matmul_precision import MATMUL_PRECISION
from autotune.knobs.optimizer_impl import OPTIMIZER_IMPL
from autotune.knobs.precision import PRECISION
from autotune.knobs.threads import INTEROP_THREADS, OMP_WAIT, THREADS

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
BY_NAME: dict[str, Knob] = {knob.name: knob for knob in KNOBS}
KNOB_NAMES: tuple[str, ...] = tuple(BY_NAME)
CONDITIONAL: tuple[Knob, ...] = tuple(knob for knob in KNOBS if knob.conditional)
"""Knobs that do nothing beside some other settings."""
