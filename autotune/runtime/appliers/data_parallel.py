"""One process that drives every GPU: `torch.nn.DataParallel`, which PyTorch advises against and many still use."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from autotune.runtime.applier import Applier
from autotune.runtime.calls import Autocast, AutocastFactory, Bare, Call, Layer


class DataParallel(Applier):
    """Replaces a model's call by one that splits its batch."""

    def start(self) -> str | None:
        """Look for GPUs."""
        return idle(self.training.device) if self.value else None

    def around(self, model: nn.Module, call: Call) -> Call:
        """A call of all replicas, where there are GPUs and the user has not split the batch himself."""
        if not self.value or idle(self.training.device) is not None or isinstance(model, nn.DataParallel):
            return call
        precision: Any = self.training.appliers["precision"]
        return Replicated(model, precision.autocast)


class Replicated(Layer):
    """A call whose batch is split over every GPU; the parameters stay on the first.

    Nothing goes around it. Each replica enters autocast itself, since threads do not inherit autocast's type.
    """

    outermost = True

    def __init__(self, model: nn.Module, autocast: AutocastFactory) -> None:
        self.parallel = nn.DataParallel(Bare(model, partial(_in_autocast, autocast=autocast)))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The outputs of all replicas, together."""
        return self.parallel(*arguments, **options)


def _in_autocast(model: nn.Module, autocast: AutocastFactory) -> Autocast:
    return Autocast(model, model._call_impl, autocast)


def why_not_replicated(model: nn.Module, precision: str) -> str | None:
    """Why a model that the user replicates himself cannot run in ``precision``; None where it can.

    `torch.nn.DataParallel` turns autocast on in its threads, but with their own type, which is float16 on CUDA.
    """
    if precision != "bf16" or not isinstance(model, nn.DataParallel) or len(model.device_ids) < 2:
        return None
    return "torch.nn.DataParallel would run it in float16; leave the model bare and set data_parallel=True"


def idle(device: torch.device) -> str | None:
    """Why there is nothing to split batches over; None where there is."""
    if device.type != "cuda":
        return "no CUDA device"
    count = torch.cuda.device_count()
    return None if count > 1 else f"PyTorch sees {count} GPU"
