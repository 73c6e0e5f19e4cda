"""Example inspections."""

from __future__ import annotations

from typing import Any

from autotune.diagnosis.inspection import Inspection, LoaderAlone, Operator, Sizes, SlowOperator
from autotune.diagnosis.passes import Limits
from autotune.stats.proof import Proof, Round

LIMITS = Limits(flops=1e12, bandwidth=1e10)
SIZES = Sizes(parameters=100, gradients=100, optimizer_state=200, activations=3200, batch=640, peak=10_000)
BUSY = LoaderAlone(batch_seconds=0.01, epoch_seconds=0.1, main_busy=0.9, worker_busy=0.0, storage_bytes=0.0)
MATRIX = Operator("aten::mm", calls=2, flops=1e9, bytes=1e6, seconds=0.002)


def inspection(**changes: Any) -> Inspection:
    """A step of 10 ms with one matrix product."""
    values: dict[str, Any] = {
        "step_seconds": 0.01,
        "update_seconds": 0.001,
        "exchange_seconds": None,
        "copy_seconds": None,
        "call_seconds": 5e-6,
        "operators": (MATRIX,),
        "slowest": (SlowOperator("aten::mm", ((64, 32), (32, 8)), 2.0, 0.002),),
        "loader": BUSY,
        "sizes": SIZES,
        "batches": (),
    }
    return Inspection(**(values | changes))


def gain(value: float, low: float | None = None, high: float | None = None) -> Proof:
    """A ratio; without an interval where none is said."""
    return Proof(value, value if low is None else low, value if high is None else high, 0.95, 6)


def rounds(**gains: float) -> list[Round]:
    """Six rounds in three generations that show ``gains`` over a step at 1000 items/s."""
    rates = {"step": 1000.0} | {name: 1000.0 * value for name, value in gains.items()}
    return [Round(turn // 2, rates) for turn in range(6)]
