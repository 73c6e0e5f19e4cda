"""Holds a recording to one state of the machine: cores as near each other as they have been seen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from autotune.core.measurement import FAR
from autotune.trial.child.core_latency import Crossing

PAUSE_SECONDS = 0.2
TRIES = 3
Result = TypeVar("Result")


class Gate:
    """Lets measurements through while the cores are near each other.

    Args:
        nearest: the least crossing of an earlier recording, in seconds; 0 where there is none.
        patience: seconds of waiting in all; once they are over, everything passes.
    """

    def __init__(self, nearest: float, patience: float) -> None:
        cores = len(os.sched_getaffinity(0))
        torch.set_num_threads(cores)
        self.crossing = Crossing("cpu", cores)
        self.nearest, self.patience, self.waited = nearest, patience, 0.0

    def measured(self, measure: Callable[[], Result]) -> Result:
        """What ``measure`` returns, with near cores before and after it."""
        for _ in range(TRIES):
            self.wait()
            result = measure()
            if not self.far() or self.waited >= self.patience:
                break
        return result

    def wait(self) -> None:
        """Return once the cores are near, or patience is over."""
        while self.far() and self.waited < self.patience:
            time.sleep(PAUSE_SECONDS)
            self.waited += PAUSE_SECONDS

    def far(self) -> bool:
        """Whether crossing takes clearly longer than it once did."""
        now = self.crossing.seconds()
        self.nearest = min(now, self.nearest or now)
        return now > FAR * self.nearest
