"""The exchange of gradients between processes, by `torch.nn.parallel.DistributedDataParallel`.

PyTorch's module serves the parameters that are trained when it is made. Here one is made for each set of trained
parameters that comes up, so that freezing and unfreezing work as they do in one process. Gradients that reached the
parameters past the model's call (a method of the model, a second backward pass) are averaged after the backward pass.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel

from autotune.runtime.calls import Bare, Call, Layer
from autotune.runtime.mpi_group import MpiGroup

_OPTIONS = inspect.signature(DistributedDataParallel).parameters
BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _OPTIONS else "broadcast_buffers"
"""What PyTorch calls the option that brings rank 0's buffers to all ranks in every forward pass."""


class Exchange(Layer):
    """A model's call whose gradients are averaged over all processes.

    Args:
        model: the user's.
        call: what calling it runs in one process.
        device: this process's.
        find_unused_parameters: for models in which some parameters take no part in some losses.
    """

    def __init__(self, model: nn.Module, call: Call, device: torch.device, *, find_unused_parameters: bool) -> None:
        self.model, self.call = model, call
        self.find_unused_parameters = find_unused_parameters
        self._ids = [device.index] if device.type == "cuda" else None
        self._bare = Bare(model, lambda _model: call)
        self._by_trained: dict[tuple[int, ...], DistributedDataParallel] = {}
        self._waiting = False
        """True where PyTorch's module will average the next backward pass, since the model was called."""
        self._apart = False
        from_rank_zero(model)
        if any(parameter.requires_grad for parameter in model.parameters()):
            self._module()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The model's outputs."""
        if not torch.is_grad_enabled() or not any(p.requires_grad for p in self.model.parameters()):
            return self.call(*arguments, **options)
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
                f"PyTorch says: {error}"
            ) from error

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of backward passes inside stay in this process; the next one outside averages their sum."""
        before, self._apart = self._apart, True
        try:
            yield
        finally:
            self._apart = before

    def after_backward(self) -> None:
        """Average gradients that PyTorch's module has not seen."""
        if self._apart:
            return
        waiting, self._waiting = self._waiting, False
        if not waiting:
            average(list(self.model.parameters()))

    def _module(self) -> DistributedDataParallel:
        """PyTorch's module for the parameters that are trained now."""
        trained = tuple(id(parameter) for parameter in self.model.parameters() if parameter.requires_grad)
        if trained not in self._by_trained:
            self._by_trained[trained] = self._share()
        return self._by_trained[trained]

    def _share(self) -> DistributedDataParallel:
        options: dict[str, Any] = {"device_ids": self._ids, BUFFERS: _has_state(self.model)}
        module = DistributedDataParallel(
            self._bare, find_unused_parameters=self.find_unused_parameters, **options
        )
        group = module.process_group
        if isinstance(group, MpiGroup):
            # A lambda, since PyTorch takes an annotated hook only where the annotations are no strings.
            module.register_comm_hook(group, lambda group, bucket: group.exchange(bucket))
        return module


def _has_state(model: nn.Module) -> bool:
    """True where buffers other than running statistics may decide what the model computes.

    Running statistics take no part in training, and rank 0's, which is saved, are its own. Overwriting them in every
    call would break losses of several calls.
    """
    return any(
        True for module in model.modules() if not isinstance(module, _NormBase) for _ in module.buffers(recurse=False)
    )


def normalises(model: nn.Module) -> bool:
    """True where a layer takes statistics over the samples of a batch."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def from_rank_zero(model: nn.Module) -> None:
    """Rank 0's parameters and buffers on every rank, trained or not."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.copy_(whole)


def average(parameters: list[nn.Parameter]) -> None:
    """Average the gradients of ``parameters`` over all processes, in place; absent ones count as zero.

    A gradient that is absent on every process stays so.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        return
    present = torch.tensor([p.grad is not None for p in trained], dtype=torch.int32, device=trained[0].device)
    dist.all_reduce(present)
    for parameter, count in zip(trained, present.tolist(), strict=True):
        if count:
            _average(parameter)


def _average(parameter: nn.Parameter) -> None:
    gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    dense: Tensor = gradient.to_dense() if gradient.is_sparse else gradient
    whole = dense.contiguous()
    dist.all_reduce(whole)
    whole /= dist.get_world_size()
    if parameter.grad is None or gradient.is_sparse:
        parameter.grad = whole.to_sparse(gradient.sparse_dim()) if gradient.is_sparse else whole
    else:
        gradient.copy_(whole)
