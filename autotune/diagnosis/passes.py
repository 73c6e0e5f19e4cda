"""What forward and backward passes are bound by: calls of small operators, matrix products, or memory traffic.

Each operator's own time is divided: what its calls cost by themselves is overhead; the rest is bound by memory where
the traffic at this machine's bandwidth explains much of it and more than the operations do (the roofline model:
Williams, Waterman, Patterson 2009), and by computing elsewhere.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.diagnosis.inspection import Inspection, Operator
from autotune.stats.proof import CONFIDENCE, Proof
from autotune.stats.student import student_quantile

OVERHEAD, COMPUTE, BANDWIDTH = "overhead", "compute", "memory bandwidth"
EXPLAINS = 0.3
"""Memory traffic at full bandwidth must explain this share of an operator's time before memory bounds it."""


@dataclass(frozen=True)
class Limits:
    """What this machine reached in short benchmarks; 0 where that is unknown.

    Attributes:
        flops: operations per second of large matrix products in the precision of the step.
        bandwidth: bytes per second that a copy reads and writes.
    """

    flops: float
    bandwidth: float


@dataclass(frozen=True)
class PassSeconds:
    """Seconds of the passes of one step, by what bounds them."""

    overhead: float
    compute: float
    bandwidth: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.overhead + self.compute + self.bandwidth

    @property
    def kernels(self) -> float:
        """All but the cost of calling."""
        return self.compute + self.bandwidth

    @property
    def kind(self) -> str:
        """What most of it is bound by."""
        own = {OVERHEAD: self.overhead, COMPUTE: self.compute, BANDWIDTH: self.bandwidth}
        return max(own, key=lambda name: own[name])


def pass_seconds(inspection: Inspection, limits: Limits) -> PassSeconds:
    """The operators' own time, divided by what bounds them."""
    found = dict.fromkeys((OVERHEAD, COMPUTE, BANDWIDTH), 0.0)
    for operator in inspection.operators:
        calling = min(operator.seconds, operator.calls * inspection.call_seconds)
        found[OVERHEAD] += calling
        found[_bound_by(operator, limits)] += operator.seconds - calling
    return PassSeconds(found[OVERHEAD], found[COMPUTE], found[BANDWIDTH])


def _bound_by(operator: Operator, limits: Limits) -> str:
    traffic = operator.bytes / limits.bandwidth if limits.bandwidth else 0.0
    computing = operator.flops / limits.flops if limits.flops else 0.0
    return BANDWIDTH if traffic > max(computing, EXPLAINS * operator.seconds) else COMPUTE


def used(inspection: Inspection, limits: Limits, step_seconds: float) -> Mapping[str, float]:
    """Shares of the machine's limits that a step of ``step_seconds`` uses; only those that are known."""
    flops = sum(operator.flops for operator in inspection.operators)
    traffic = sum(operator.bytes for operator in inspection.operators)
    found = {COMPUTE: (flops, limits.flops), BANDWIDTH: (traffic, limits.bandwidth)}
    return {name: amount / step_seconds / most for name, (amount, most) in found.items() if most and amount}


def without_share(share: tuple[float, float, float]) -> Proof:
    """How much faster a step could be without a share of it: (value, low, high)."""
    value, low, high = (1 / (1 - each) if each < 1 else math.inf for each in share)
    return Proof(value, low, high, CONFIDENCE, rounds=1)


def fixed_share(batches: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Share of the passes that does not shrink with the batch: (value, low, high); None below two measurements.

    A quarter of the batch takes ``a + c / 4`` where the whole takes ``a + c``.
    """
    if len(batches) < 2:
        return None
    logs = [math.log(quarter / full) for full, quarter in batches]
    half = student_quantile(0.5 + CONFIDENCE / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    centre = statistics.mean(logs)
    value, low, high = (
        min(1.0, max(0.0, (4 * math.exp(each) - 1) / 3)) for each in (centre, centre - half, centre + half)
    )
    return value, low, high
