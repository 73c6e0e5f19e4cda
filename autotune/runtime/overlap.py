"""Gradients exchanged during the backward pass, by `torch.nn.parallel.DistributedDataParallel`: for GPUs.

PyTorch's module serves the parameters that are trained when it is made. Here one is made for each set of trained
parameters that comes up, so that freezing and unfreezing work as they do in one process.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotune.knobs.model_call import Call, Layered

_OPTIONS = inspect.signature(DistributedDataParallel).parameters
BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _OPTIONS else "broadcast_buffers"
"""PyTorch's name of the option that brings rank 0's buffers to all ranks in every forward pass."""


class _Bare(nn.Module):
    """The model as PyTorch's module sees it: the same parameters and buffers, and the given call."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Return the model's outputs."""
        return self.call(*inputs, **options)


class Overlapped(Layered):
    """A model's call whose gradients are averaged during the backward pass.

    Args:
        model: the user's.
        device: this process's.
        find_unused_parameters: for models in which some parameters take no part in some losses.
    """

    def __init__(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> None:
        self.model = model
        self.find_unused_parameters = find_unused_parameters
        self._ids = [device.index] if device.type == "cuda" else None
        self._by_trained: dict[tuple[int, ...], DistributedDataParallel] = {}
        self._waiting = False
        """True if PyTorch's module will average the next backward pass, since the model was called."""
        self._apart = False
        super().__init__(model, self._around)
        if any(parameter.requires_grad for parameter in model.parameters()):
            self._module()

    def _around(self, call: Call) -> Call:
        self._plain, self._bare = call, _Bare(self.model, call)
        return self._forward

    def _forward(self, *arguments: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled() or not self._trains():
            return self._plain(*arguments, **options)
        module = self._module()
        if self._apart:
            with module.no_sync():
                return module(*arguments, **options)
        self._waiting = True
        try:
            return module(*arguments, **options)
        except RuntimeError as error:
            if "find_unused_parameters" not in str(error):
                raise
            raise RuntimeError(
                "Some parameters took no part in the loss, so the processes wait for their gradients in vain. "
                "Write tuned.prepare(..., find_unused_parameters=True), or drop what is unused. "
                f"PyTorch's error: {error}"
            ) from error

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keep gradients of backward passes inside in this process; the next one outside averages their sum."""
        before, self._apart = self._apart, True
        try:
            yield
        finally:
            self._apart = before

    def averaged(self) -> list[Tensor]:
        """Return, after a backward pass, the parameters whose gradients this layer has averaged."""
        waiting, self._waiting = self._waiting, False
        return list(self.model.parameters()) if waiting else []

    def _trains(self) -> bool:
        """Return False in evaluation, for a frozen model, and in `torch.func.functional_call` with other tensors."""
        found = list(self.model.parameters())
        own = all(isinstance(parameter, nn.Parameter) for parameter in found)
        return self.model.training and own and any(parameter.requires_grad for parameter in found)

    def _module(self) -> DistributedDataParallel:
        """Return PyTorch's module for the parameters that are trained now."""
        trained = tuple(id(parameter) for parameter in self.model.parameters() if parameter.requires_grad)
        if trained not in self._by_trained:
            options: dict[str, Any] = {"device_ids": self._ids, BUFFERS: False}
            self._by_trained[trained] = DistributedDataParallel(
                self._bare, find_unused_parameters=self.find_unused_parameters, **options
            )
        return self._by_trained[trained]
