"""The knob table. Its order is the order of settings in profiles and reports."""

from __future__ import annotations

from autotune.core.knobs.compile import COMPILE
from autotune.core.knobs.knob import Knob
from autotune.core.knobs.loader import NUM_WORKERS, PERSISTENT_WORKERS, PIN_MEMORY, PREFETCH_FACTOR, WORKER_START
from autotune.core.knobs.memory import ALLOCATOR, MALLOC
from autotune.core.knobs.model import (
    CHANNELS_LAST,
    CUDNN_BENCHMARK,
    MATMUL_PRECISION,
    OPTIMIZER_IMPL,
    PRECISION,
)
from autotune.core.knobs.processes import (
    BACKEND,
    BATCH_SIZE,
    BINDING,
    DATA_PARALLEL,
    INTEROP_THREADS,
    OMP_WAIT,
    PROCESSES,
    THREADS,
)

KNOBS: tuple[Knob, ...] = (
    PROCESSES,
    THREADS,
    INTEROP_THREADS,
    OMP_WAIT,
    BACKEND,
    DATA_PARALLEL,
    BINDING,
    NUM_WORKERS,
    PREFETCH_FACTOR,
    PERSISTENT_WORKERS,
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
