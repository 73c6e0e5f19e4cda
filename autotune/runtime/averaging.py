"""Tensors of several processes: averaged, compared, or taken from rank 0. All ranks call these alike."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parameter import is_lazy

LARGE = 2**15
"""Gradients of as many elements travel by themselves; smaller ones travel together."""
TOLERANCE = 1e-3
"""Relative difference of a parameter's sum between processes that rounding does not make."""


class Known:
    """Tensors that have been seen. Kept by weak reference: a new tensor may get an old one's number."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[weakref.ref[Tensor], int]] = {}

    def new(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Those of ``tensors`` that are new; from now on they are not."""
        found = [tensor for tensor in tensors if not is_lazy(tensor) and not self._has(tensor)]
        self.settle(found)
        return found

    def changed(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Those of ``tensors`` that were written to since they were new, or since `settle`."""
        return [tensor for tensor in tensors if self._has(tensor) and self._seen[id(tensor)][1] != tensor._version]

    def settle(self, tensors: Iterable[Tensor]) -> None:
        """As they are now, ``tensors`` count as unchanged."""
        self._seen.update({id(tensor): (weakref.ref(tensor), tensor._version) for tensor in tensors})

    def _has(self, tensor: Tensor) -> bool:
        entry = self._seen.get(id(tensor))
        return entry is not None and entry[0]() is tensor


def from_rank_zero(tensors: Sequence[Tensor], device: torch.device) -> bool:
    """Rank 0's values in ``tensors``. Returns whether any process had others. What cannot be written to is left out."""
    differ = False
    with torch.no_grad():
        for tensor in tensors:
            if not _writable(tensor):
                continue
            whole = tensor.detach().contiguous()
            content = whole.view(-1).view(torch.uint8).clone()
            dist.broadcast(content, 0)
            received = content.view(whole.dtype).view(whole.shape)
            if not torch.equal(content, whole.view(-1).view(torch.uint8)):
                differ = True
                tensor.copy_(received)
    flag = torch.tensor([int(differ)], device=device)
    dist.all_reduce(flag)
    return bool(flag.item())


def _writable(tensor: Tensor) -> bool:
    if is_lazy(tensor) or tensor.layout is not torch.strided or tensor.numel() == 0:
        return False
    return all(step != 0 or size == 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))


def average(parameters: Sequence[Tensor], others: Sequence[Tensor] = ()) -> None:
    """Average the gradients of ``parameters`` over all processes, in place, and the values of ``others``.

    A gradient that is absent counts as zero, and stays absent where no process has it. One that is sparse anywhere
    becomes sparse everywhere, with the rows of all.
    """
    with torch.no_grad():
        groups: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
        for parameter in parameters:
            if parameter.is_leaf and parameter.requires_grad and not is_lazy(parameter):
                groups.setdefault((parameter.device, parameter.dtype), ([], []))[0].append(parameter)
        for other in others:
            groups.setdefault((other.device, other.dtype), ([], []))[1].append(other)
        for own, values in groups.values():
            _average(own, values)


def _average(parameters: list[Tensor], values: list[Tensor]) -> None:
    """Of one type: small gradients, values, and what is present in one message, then each gradient that is present
    anywhere and large or sparse."""
    world = dist.get_world_size()
    kind = parameters[0] if parameters else values[0]
    flags = [[p.grad is not None for p in parameters], [_is_sparse(p) for p in parameters]]
    present = torch.tensor(flags, dtype=kind.dtype, device=kind.device).view(-1)
    small = [p for p in parameters if p.numel() < LARGE]
    message = torch.cat([present, *(_dense(p).reshape(-1) for p in small), *(v.reshape(-1) for v in values)])
    dist.all_reduce(message)
    counts = message[: present.numel()].abs().view(2, -1).tolist()
    anywhere, sparse = ({id(p) for p, n in zip(parameters, each, strict=True) if n > 0} for each in counts)
    sizes = [tensor.numel() for tensor in (*small, *values)]
    parts = torch.split(message[present.numel() :].div_(world), sizes)
    for parameter, part in zip(small, parts, strict=False):
        if id(parameter) in anywhere and id(parameter) not in sparse:
            _put(parameter, part.view(parameter.shape))
    for value, part in zip(values, parts[len(small) :], strict=True):
        value.copy_(part.view(value.shape))
    dense = [p for p in parameters if p.numel() >= LARGE and id(p) in anywhere - sparse]
    wholes = [_dense(parameter).contiguous() for parameter in dense]
    for work in [dist.all_reduce(whole, async_op=True) for whole in wholes]:
        work.wait()
    for parameter, whole in zip(dense, wholes, strict=True):
        _put(parameter, whole.div_(world))
    for parameter in parameters:
        if id(parameter) in sparse:
            _average_rows(parameter, world)


def _average_rows(parameter: Tensor, world: int) -> None:
    """A sparse gradient: the rows that any process has."""
    whole = _dense(parameter).contiguous()
    rows = torch.zeros(len(parameter), dtype=parameter.dtype, device=parameter.device)
    if parameter.grad is not None:
        rows[parameter.grad.coalesce().indices()[0] if _is_sparse(parameter) else slice(None)] = 1
    for work in [dist.all_reduce(each, async_op=True) for each in (whole, rows)]:
        work.wait()
    indices = rows.abs().nonzero().view(1, -1)
    parameter.grad = torch.sparse_coo_tensor(indices, whole.div_(world)[indices[0]], parameter.shape)


def _is_sparse(parameter: Tensor) -> bool:
    return parameter.grad is not None and parameter.grad.layout is not torch.strided


def _dense(parameter: Tensor) -> Tensor:
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
    return gradient.to_dense() if gradient.layout is not torch.strided else gradient.detach()


def _put(parameter: Tensor, averaged: Tensor) -> None:
    gradient = parameter.grad
    if gradient is None:
        parameter.grad = torch.empty_like(parameter).copy_(averaged)
    elif gradient.data_ptr() != averaged.data_ptr():
        gradient.detach().copy_(averaged)


def drifted(parameters: Sequence[Tensor], rates: Sequence[float], device: torch.device) -> bool:
    """Whether the processes' parameters or learning rates have come apart."""
    plain = (p for p in parameters if not is_lazy(p) and p.layout is torch.strided and not p.is_complex())
    sums = [p.detach().double().abs().sum() for p in plain]
    own = torch.stack([*(s.to(device) for s in sums), *(torch.as_tensor(r).double().to(device) for r in rates)])
    total = own.clone()
    dist.all_reduce(total)
    mean = total / dist.get_world_size()
    apart = ((own - mean).abs() > TOLERANCE * mean.abs() + 1e-12).any() & mean.isfinite().all()
    flag = apart.to(torch.int64).view(1)
    dist.all_reduce(flag)
    return bool(flag.item())
