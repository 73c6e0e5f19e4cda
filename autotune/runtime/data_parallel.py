"""One process that drives every GPU: `torch.nn.DataParallel`, which PyTorch advises against and many still use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from autotune.runtime.precision import AutocastForward


class InAutocast(nn.Module):
    """``module`` whose forward runs in autocast and returns float32.

    A module of its own: `torch.nn.DataParallel` copies instances into its replicas, where a replaced ``forward`` would
    still be the first GPU's. Entered in each replica's thread, since threads do not inherit autocast's type.
    """

    def __init__(self, module: nn.Module, autocast: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
        super().__init__()
        self.module = module
        self.autocast = autocast

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The wrapped model's outputs in float32."""
        return AutocastForward(self.module, self.autocast)(*inputs, **kwargs)


def replicate(model: nn.Module, autocast: Callable[[], contextlib.AbstractContextManager[Any]]) -> nn.Module:
    """``model``, or what its user has wrapped, replicated over every GPU; its parameters stay on the first."""
    bare = model.module if isinstance(model, nn.DataParallel) else model
    return nn.DataParallel(InAutocast(bare, autocast))


def loses(model: nn.Module, precision: str) -> str | None:
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
