"""Estimates the gradient noise scale of a training, in a trial of its own. `noise_scale` is its `TrialSpec.inspect`.

The noise scale B tells how far a larger batch is worth its samples (McCandlish et al. 2018, An Empirical Model of
Large-Batch Training). Gradients at the same weights are taken of several batches. With g of one batch, G of all
samples and S the variance of one sample's gradient, E|g|^2 = |G|^2 + S / b, and two batches have E(g . g') = |G|^2.
So B / b = S / (b |G|^2), in batches, follows from the sum of the gradients and that of their squares.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autotune.knobs.optimizer_impl import parameters_of
from autotune.trial.child.measured_loop import MeasuredLoop, Steps

BATCHES, LEAST_BATCHES = 16, 4
"""Of a window, in which the weights stay as they are."""
WINDOWS = 4
"""At least, while steps take as long as expected."""
TRAINED = 3
"""Steps of training for each batch of a window."""
COUNTED = 0.5
"""Of what is measured: a run that reaches its loss sooner than the trial ends has a smaller noise scale."""


def noise_scale(loop: MeasuredLoop, pace: float) -> Steps[dict[str, Any]]:
    """Train and take gradients in turn for the trial's time. Return ``noise_scale``, in batches of the trial; nothing
    for several optimizers or processes, and if there was too little time. It is rather too low than too high: half of
    it counts, the first windows, whose gradients are large, count most, and it grows while a loss falls."""
    optimizers = loop.trained_with()
    if len(optimizers) != 1 or loop.session.world_size > 1:
        return {}
    seconds, begun = loop.spec.max_seconds, time.perf_counter()
    batches = max(LEAST_BATCHES, min(BATCHES, int(seconds / pace / WINDOWS / (1 + TRAINED))))
    window = Window(parameters_of(optimizers[0]))
    found: list[tuple[float, float]] = []
    while time.perf_counter() - begun < seconds and not loop.over:
        yield from loop.timed(TRAINED * batches)
        undo = loop.instead_of_steps(optimizers[0], window.takes)
        yield from loop.timed(batches)
        undo()
        found += window.take()
    if len(found) < 2:
        return {}
    signals, noises = zip(*found, strict=True)
    error = statistics.stdev(signals) / math.sqrt(len(signals))
    signal = max(statistics.fmean(signals), error)  # the error, if it is lost in it
    return {"noise_scale": COUNTED * statistics.fmean(noises) / signal} if signal > 0 else {}


class Window:
    """Sums up the gradients of ``parameters`` over batches at the same weights."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self._parameters = parameters
        self._sums: list[Tensor | None] = [None] * len(parameters)
        self._squares = 0.0
        self._count = 0

    def takes(self, closure: Callable[[], Any] | None = None, **_options: Any) -> Any:
        """Take the gradients, in the place of an optimizer's step."""
        with torch.enable_grad():
            loss = closure() if closure is not None else None
        for place, parameter in enumerate(self._parameters):
            if parameter.grad is not None and parameter.grad.layout is torch.strided:
                gradient = parameter.grad.detach()
                known = self._sums[place]
                self._sums[place] = gradient.clone() if known is None else known.add_(gradient)
                self._squares += float(gradient.double().square().sum())
        self._count += 1
        return loss

    def take(self) -> list[tuple[float, float]]:
        """Return the squared norm of the mean gradient and the variance of a batch's, and begin anew; nothing if the
        optimizer has hardly stepped."""
        count, squares = self._count, self._squares
        total = sum(float(each.double().square().sum()) for each in self._sums if each is not None)
        self._sums, self._squares, self._count = [None] * len(self._parameters), 0.0, 0
        if count < 2:
            return []
        signal = (total - squares) / (count * (count - 1))
        return [(signal, squares / count - signal)]
