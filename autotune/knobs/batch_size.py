"""Samples of a batch. The global batch moves at level ``max`` only."""

from __future__ import annotations

from autotune.knobs.exported import ARGUMENTS, LIGHTNING, LOADER, TRANSFORMERS, Plan, argument
from autotune.knobs.knob import LESS, MORE, ROUNDING, Choices, Context, Count, Knob, divisors


def _batch_size(context: Context) -> Choices:
    batch = context.baseline.global_batch
    return Choices(tuple(sorted(size for size in divisors(batch) if batch // size <= 64)))


def _plain(plan: Plan) -> str:
    processes = plan.settings.processes
    each = f", of each of {processes} processes" if processes > 1 else ""
    return f"DataLoader(..., batch_size={plan.settings.batch_size}){each}"


BATCH_SIZE = Knob(
    name="batch_size",
    what="samples per process",
    words="batch {}",
    offered="at the same global batch; at `max` up to 32 times yours",
    kind=Count(1, 2**24),
    neutral=1,
    applied="loader",
    choices=_batch_size,
    follows=True,
    keeps=ROUNDING,
    why={MORE: "larger kernels use the hardware better", LESS: "smaller pieces fit caches and memory"},
    plain=_plain,
    export={
        LIGHTNING: argument(LOADER, "batch_size", lambda settings: settings.batch_size),
        TRANSFORMERS: argument(ARGUMENTS, "per_device_train_batch_size", lambda settings: settings.batch_size),
    },
)
