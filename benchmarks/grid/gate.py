"""Holds a recording to one state of the machine: core-to-core latency as low as it has been seen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from autotune.trial.child.core_latency import CoreLatencyTimer

from autotune.knobs.settings import Settings
from autotune.stats.measurement import HIGH_LATENCY

PAUSE_SECONDS = 0.2
TRIES = 3
Result = TypeVar("Result")


class Gate:
    """Lets measurements through while core-to-core latency is low.

    Args:
        lowest: the lowest core-to-core latency of an earlier recording, in seconds; 0 where there is none.
        patience: seconds of waiting in all; once they are over, everything passes.
    """

    def __init__(self, lowest: float, patience: float) -> None:
        cores = len(os.sched_getaffinity(0))
        torch.set_num_threads(cores)
        self.latency = CoreLatencyTimer("cpu", Settings(threads=cores))
        self.lowest, self.patience, self.waited = lowest, patience, 0.0

    def measured(self, measure: Callable[[], Result]) -> Result:
        """What ``measure`` returns, with a low latency before and after it."""
        for _ in range(TRIES):
            self.wait()
            result = measure()
            if not self.high() or self.waited >= self.patience:
                break
        return result

    def wait(self) -> None:
        """Return once the latency is low, or patience is over."""
        while self.high() and self.waited < self.patience:
            time.sleep(PAUSE_SECONDS)
            self.waited += PAUSE_SECONDS

    def high(self) -> bool:
        """Whether the latency is clearly higher than it once was."""
        now = self.latency.seconds()
        self.lowest = min(now, self.lowest or now)
        return now > HIGH_LATENCY * self.lowest
