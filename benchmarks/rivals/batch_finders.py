"""The batch-only rivals: a fresh process that ends with a batch size; everything else stays as today.

Both look for a batch that memory can hold, not for a fast one. Where a CPU's memory is exhausted the process is killed
rather than told, so a user bounds the search: here at 32 times today's batch, as far as autotune's level ``max`` goes.
"""

from __future__ import annotations

import json
import sys
import time

from autotune.knobs.space import MAX_BATCH_FACTOR
from benchmarks.rivals.history import Choice, Method, Point
from benchmarks.rivals.measuring import Failed, environment, run
from benchmarks.rivals.stage import Stage

LEVEL = "max"


def lightning(stage: Stage, budget: float) -> list[Method]:
    """Lightning's ``Tuner.scale_batch_size``."""
    return [_method("Lightning scale_batch_size", "benchmarks.rivals.lightning_batch", stage, budget)]


def accelerate(stage: Stage, budget: float) -> list[Method]:
    """Accelerate's ``find_executable_batch_size``."""
    return [_method("Accelerate find_executable_batch_size", "benchmarks.rivals.accelerate_batch", stage, budget)]


def _method(name: str, module: str, stage: Stage, budget: float) -> Method:
    """Run ``module`` on the task; until it has ended, and where it does not, today's settings stay."""
    current, started = stage.current, time.monotonic()
    today = Point(0.0, Choice(current))
    largest = str(current.batch_size * MAX_BATCH_FACTOR)
    line = [sys.executable, "-m", module, str(stage.task), json.dumps(current.as_dict()), largest]
    try:
        written = run([(line, {})], environment(current.as_dict()), budget)
    except Failed as error:
        return Method(name, LEVEL, (today,), note=str(error))
    batch = int(written.split()[-1])
    chosen = Point(time.monotonic() - started, Choice(current.but(batch_size=batch)))
    return Method(name, LEVEL, (today, chosen), note=f"found batch {batch}")
