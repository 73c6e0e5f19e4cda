"""Raw blocks and what follows from them.

A block is a run of whole optimizer steps of at least 100 ms, so that reading the clock costs nothing. The device and
the processes are synchronised at its edges only. Rates are sums over sums: a median would hide loader stalls.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from autotune.knobs.task_facts import MemoryUse

MIN_BLOCK_SECONDS = 0.1
MIN_WARMUP_STEPS = 3
MIN_WARMUP_SECONDS = 0.3
STEADY_BLOCKS = 3
SLOW_STEP_SECONDS = 0.1
"""Steps longer than this make blocks of their own: fewer of them show a steady state, and caches stay warm by them."""
STEADY_TOLERANCE = 0.03
MOST_CPU_WAIT = 0.2
"""CPU wait share above which a block shows nothing of the settings."""
LASTING = 0.1
"""A candidate with a larger CPU wait share in one round has it in the next one too."""

MIN_BLOCKS = 3
CLEAR = 1.15
"""A trial is a clear loser once even this many times its rate is below the bar."""


@dataclass(frozen=True)
class Block:
    """Whole optimizer steps between two synchronised clock readings.

    Attributes:
        items: items of finished optimizer steps, over all processes.
        seconds: wall time.
        steps: optimizer steps, skipped ones (GradScaler) included; their items are not.
        cpu_wait: share of the processors' time, 0..1, that the training waited for while other processes ran, or the
            hypervisor's other guests. It does not wait for a neighbour that yields.
        neighbours: processors that other processes and the hypervisor's other guests kept busy meanwhile, on average.
    """

    items: int
    seconds: float
    steps: int
    cpu_wait: float = 0.0
    neighbours: float = 0.0

    @property
    def rate(self) -> float:
        """Return items per second."""
        return self.items / self.seconds

    @property
    def disturbed(self) -> bool:
        """Return True if an outside reason spoiled the block. Being slow is no reason."""
        return self.cpu_wait > MOST_CPU_WAIT


@dataclass(frozen=True)
class Measurement:
    """All blocks of one trial; every statistic is derived."""

    blocks: tuple[Block, ...]
    warmup_seconds: float = 0.0
    warmup_steps: int = 0
    skipped_steps: int = 0
    """Optimizer steps that a GradScaler skipped."""
    first_step_seconds: float = 0.0
    """The first optimizer step, compilation included."""
    load_share: float = 0.0
    """Share of the measured time that the training process waited for its loader."""
    load_threads: float = 1.0
    """Threads that read samples, on average, in each process that reads."""
    memory: MemoryUse = field(default_factory=MemoryUse)
    """Of rank 0, loader workers included."""

    @cached_property
    def kept(self) -> tuple[Block, ...]:
        """Return the undisturbed blocks, or all of them if none is: that is this machine's normal."""
        good = tuple(block for block in self.blocks if not block.disturbed)
        return good or self.blocks

    @property
    def disturbed(self) -> bool:
        """Return True if others disturbed every block."""
        return all(block.disturbed for block in self.blocks)

    @property
    def cpu_wait(self) -> float:
        """Return the mean CPU wait share of the blocks."""
        return statistics.mean(block.cpu_wait for block in self.blocks) if self.blocks else 0.0

    @cached_property
    def rate(self) -> float:
        """Return items per second: sum of items over sum of wall time."""
        seconds = sum(block.seconds for block in self.kept)
        return sum(block.items for block in self.kept) / seconds if seconds > 0 else 0.0

    @property
    def step_seconds(self) -> float:
        """Return the wall time of one optimizer step."""
        return sum(block.seconds for block in self.blocks) / max(1, sum(block.steps for block in self.blocks))

    @cached_property
    def relative_error(self) -> float:
        """Return the standard error of log rate, widened for lag-1 autocorrelation; infinite below two blocks."""
        return log_standard_error([block.rate for block in self.kept])


def enough(measurement: Measurement, least: float, most: float, error: float, give_up_below: float) -> bool:
    """Return True if a trial may stop: it is a clear loser, or its error is small enough, or its time is over.

    Args:
        measurement: the blocks so far, at least one.
        least, most: seconds of blocks.
        error: relative standard error that is small enough.
        give_up_below: items per second; clearly less is a loss.
    """
    if measurement.rate * CLEAR < give_up_below:
        return True
    seconds = sum(block.seconds for block in measurement.blocks)
    if len(measurement.blocks) < MIN_BLOCKS:
        return seconds >= 2 * most
    return seconds >= most or (seconds >= least and measurement.relative_error <= error)


def log_standard_error(rates: Sequence[float]) -> float:
    """Return the standard error of the mean log of ``rates``, with the AR(1) factor (1 + r) / (1 - r) of lag-1 r."""
    if len(rates) < 2 or min(rates) <= 0:
        return math.inf
    logs = [math.log(rate) for rate in rates]
    count = len(logs)
    mean = sum(logs) / count
    deviations = [value - mean for value in logs]
    total = sum(d * d for d in deviations)
    if total == 0:
        return 0.0
    lag1 = sum(a * b for a, b in itertools.pairwise(deviations)) / total
    inflation = (1 + lag1) / (1 - lag1) if 0 < lag1 < 1 else 1.0
    return math.sqrt(total / (count - 1) / count * inflation)


def is_steady(step_seconds: Sequence[float], blocks: int = STEADY_BLOCKS) -> bool:
    """Return True once the last ``blocks`` blocks agree with those before: within 3 %, or within their own scatter.

    Args:
        step_seconds: seconds per step of each warm-up block, oldest first.
        blocks: how many to compare; two are enough if a step takes long.
    """
    if len(step_seconds) < 2 * blocks:
        return False
    before = step_seconds[-2 * blocks : -blocks]
    after = step_seconds[-blocks:]
    scatter = math.hypot(log_standard_error(before), log_standard_error(after))
    return abs(math.log(sum(after) / sum(before))) <= max(STEADY_TOLERANCE, scatter)
