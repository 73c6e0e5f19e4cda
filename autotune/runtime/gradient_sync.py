"""Several processes train one model: the same parameters at the start, the same gradients in each step.

Gradients are averaged after the backward pass. On CPUs that takes about as long as `DistributedDataParallel`, whose
copies into buckets cost what they hide (decision 013 has the figures). The model needs no change: freezing, unused
parameters, several calls, losses and backward passes all work.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from autotune.knobs.change import Change
from autotune.knobs.model_call import Call, Layered
from autotune.knobs.optimizer_impl import parameters_of
from autotune.runtime.notes import Notes
from autotune.runtime.processes import agreed
from autotune.runtime.shards import Progress

LARGE = 2**15
"""Gradients of at least this many elements are sent alone; smaller ones are sent together."""
SMALL_BUFFER = 2**16
"""Buffers of at most this many elements are sent to all processes in each step."""
COUNTED = 256
"""Batches are compared by their number modulo this, so that sums of its square are exact in float32."""
LAST = 2**62
"""Stands for a batch's number once a process takes no more batches."""
APART = (
    "Ranks started with different weights; rank 0's were broadcast. Models not passed to prepare() may still differ:"
    " call autotune.load() or torch.manual_seed before building them"
)
DRIFTED = (
    "the processes' weights differ: random numbers of your loop decide about gradients or steps, and each process"
    " draws its own. Rank 0's weights are used"
)
WRITTEN = (
    "{} are computed from one process's share of each batch, and rank 0's are used; in one process"
    " (--fix processes=1) they are computed from all of it"
)
BUFFERS, PARAMETERS = WRITTEN.format("buffers of the model"), WRITTEN.format("parameters that the model writes itself")
COMPARED_STEPS = 64
"""After so many steps, and after 1, 2, 4, 8 ..., the processes' weights are compared."""
NOTHING = "neither a model nor an optimizer is prepared: each process trains alone; pass them to tuned.prepare too"
HOOKS = "parameters have hooks of their own, which see the gradient of one process's share"


class GradientSync:
    """Keeps the models and optimizers of one session equal in all processes.

    Attributes:
        models: each prepared model.
        optimizers: each prepared optimizer.
        stopped: gradients are not averaged, so weights differ. To measure what gradient sync takes.
    """

    def __init__(self, device: torch.device, progress: Progress, notes: Notes) -> None:
        self.device, self.progress, self.notes = device, progress, notes
        self.models: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        self.stopped = False
        self._seen: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        """Version of each parameter and buffer as it was last equal in all processes."""
        self._apart: list[nn.Module] = []
        self._fresh: set[Optimizer] = set()
        self._parted = False
        """True once a process has skipped a batch."""
        self._done = False
        self._drifting = False
        """True once weights have differed between two steps."""

    # What is prepared -------------------------------------------------------------------------------------------------

    def model(self, model: nn.Module) -> Change:
        """Take rank 0's parameters and buffers, frozen ones too. Returns the layer around the call."""
        if isinstance(model, DistributedDataParallel):
            return Change()
        self._take_rank_zero((*model.parameters(), *model.buffers()))
        if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters()):
            self.notes.add(HOOKS)
        self.models.append(model)
        return Layered(model, self._around)

    def _around(self, call: Call) -> Call:
        def called(*arguments: Any, **options: Any) -> Any:
            """Take rank 0's parameters first: the script may have replaced a layer since the last step."""
            if torch.is_grad_enabled() and not self.stopped:
                self._take_rank_zeros_parameters()
            return call(*arguments, **options)

        return called

    def optimizer(self, optimizer: Optimizer) -> Change:
        """Let ``optimizer`` step on averaged gradients."""
        self.optimizers.append(optimizer)
        self._take_rank_zero(parameters_of(optimizer))
        hooks = contextlib.ExitStack()
        hooks.callback(optimizer.register_step_pre_hook(self._before_step).remove)
        hooks.callback(optimizer.register_step_post_hook(self._after_step).remove)
        return Change(hooks.close)

    # Gradients ----------------------------------------------------------------------------------------------------

    def before_backward(self) -> None:
        """Note that gradients are about to change in this process."""
        self._fresh.clear()
        self._settle()

    def _settle(self) -> None:
        """Take rank 0's values of what is new, or was written to between two steps."""
        if self.stopped:
            return
        self._take_rank_zeros_parameters()
        kept = [module for module in self._modules() if not isinstance(module, _NormBase)]
        if self._take_rank_zero(b for module in kept for b in module.buffers(recurse=False) if not _is_sent(b)):
            self.notes.add(BUFFERS)

    def after_backward(self) -> None:
        """Average the gradients of everything that is prepared, but for models under `no_sync`."""
        if self.stopped:
            return
        if not self.models and not self.optimizers:
            self.notes.add(NOTHING)
            return
        apart = {id(p) for model in self._apart for p in model.parameters()}
        self.average([p for p in self._trained() if id(p) not in apart])
        if not self._apart:
            self._fresh.update(self.optimizers)

    @contextlib.contextmanager
    def no_sync(self, models: Iterable[nn.Module]) -> Iterator[None]:
        """Keep gradients of ``models``, or of all, in this process while inside."""
        before = self._apart
        self._apart = [*before, *(list(models) or self.models)]
        try:
            yield
        finally:
            self._apart = before

    def mean(self, value: float) -> float:
        """Return the mean of ``value`` over all processes, each with the weight of its part of the batch."""
        total = torch.tensor(value * self.progress.part.weight, dtype=torch.float64).to(self.device)
        dist.all_reduce(total)
        return float(total) / dist.get_world_size()

    def abandon(self) -> None:
        """Stop answering: this process failed, and the others must not continue with a part of the data."""
        self._done = True

    def finish(self) -> None:
        """Answer processes that still wait for this one, which takes no further batch."""
        if self._done or self.stopped or not dist.is_initialized():
            return
        self._done = True
        if self.progress.steps:
            self.average(self._trained())

    def average(self, parameters: Sequence[Tensor]) -> None:
        """Average gradients. A batch that a process has skipped is skipped by all, as in one process."""
        norms, copied = self._buffers()
        if copied and self.progress.steps < 2 and _from_rank_zero(copied, self.device):
            self.notes.add(BUFFERS)
        number = LAST if self._done else self.progress.batch
        while not _average(parameters, norms, copied, number, self.device, write=not self._done):
            self._parted = True
            if number < _largest(number, self.device):
                for parameter in parameters:
                    parameter.grad = None
                self.notes.add("a process skipped a batch, so all did")
                return
        self.progress.steps += 1
        if self._parted:
            self._share_rates()
        steps = self.progress.steps
        if self._drifting or steps % COMPARED_STEPS == 0 or steps & (steps - 1) == 0:
            trained = self._trained()
            if _from_rank_zero(trained, self.device):
                self._drifting = True
                self.notes.add(DRIFTED)
            self._remember(trained)  # else this process alone would sync those that were written to now

    def _share_rates(self) -> None:
        """Take rank 0's learning rates: a process that skipped a batch may have skipped a scheduler's step, too."""
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups if "lr" in group]
        rates = torch.tensor([float(group["lr"]) for group in groups], dtype=torch.float64, device=self.device)
        dist.broadcast(rates, 0)
        for group, rate in zip(groups, rates.tolist(), strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _buffers(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return running statistics, which are averaged, and small buffers, which follow rank 0's in each step."""
        norms: list[Tensor] = []
        others: list[Tensor] = []
        for module in self._modules():
            found = [b for b in module.buffers(recurse=False) if b.is_floating_point() and not b.is_sparse]
            if isinstance(module, _NormBase):
                norms += found if module.training else []
            else:
                others += filter(_is_sent, found)
        return norms, others

    def _modules(self) -> Iterator[nn.Module]:
        return (module for model in self.models if model not in self._apart for module in model.modules())

    def _trained(self) -> list[Tensor]:
        """Return parameters of prepared models and optimizers, once each."""
        own = [p for model in self.models for p in model.parameters()]
        return list({id(p): p for p in (*own, *parameters_of(*self.optimizers))}.values())

    def _take_rank_zero(self, tensors: Iterable[Tensor]) -> bool:
        """Take rank 0's values of what is new or was written to outside a step. Return True if known ones differed."""
        new = [tensor for tensor in tensors if not is_lazy(tensor) and self._version(tensor) != tensor._version]
        first = any(self._version(tensor) is None for tensor in new)
        differ = bool(new) and _from_rank_zero(new, self.device)
        if differ and first:
            self.notes.add(APART)
        self._remember(new)
        return differ and not first

    def _take_rank_zeros_parameters(self) -> None:
        if self._take_rank_zero(self._trained()):
            self.notes.add(PARAMETERS)

    def _version(self, tensor: Tensor) -> int | None:
        """Return the version that was remembered. By weak reference: a new tensor may get an old one's ``id``."""
        entry = self._seen.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def _remember(self, tensors: Iterable[Tensor]) -> None:
        self._seen.update({id(tensor): (weakref.ref(tensor), tensor._version) for tensor in tensors})

    # Steps --------------------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: Optimizer, arguments: Any, options: Any) -> Any:
        closure = options.get("closure") if options else arguments[1] if len(arguments) > 1 else None
        if closure is None:
            self._average_rest(optimizer)
            return None
        shared = self._shared_closure(optimizer, closure)
        return (arguments, options | {"closure": shared}) if options else ((arguments[0], shared), options)

    def _shared_closure(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure whose loss is the global batch's: by it the optimizer may decide how often to call it."""

        def shared() -> Any:
            self._fresh.discard(optimizer)
            loss = closure()
            self._average_rest(optimizer)
            if loss is None:
                return None
            mean = self.mean(loss.item() if isinstance(loss, Tensor) else loss)
            return torch.as_tensor(mean, dtype=loss.dtype, device=loss.device) if isinstance(loss, Tensor) else mean

        return shared

    def _average_rest(self, optimizer: Optimizer) -> None:
        """Average gradients that no backward pass of the session has made: set by hand, or under `no_sync`."""
        if optimizer not in self._fresh and not self.stopped:
            self._settle()
            self.average(self._trained())

    def _after_step(self, optimizer: Optimizer, _arguments: Any, _options: Any) -> None:
        self._fresh.discard(optimizer)
        self._remember(parameters_of(optimizer))


# Collectives: all ranks call these alike ------------------------------------------------------------------------------


def _average(
    parameters: Sequence[Tensor],
    norms: Sequence[Tensor],
    copied: Sequence[Tensor],
    number: int,
    device: torch.device,
    *,
    write: bool,
) -> bool:
    """Average the gradients of ``parameters``, and the values of ``norms``; ``copied`` take rank 0's values.

    A gradient that is absent counts as zero, and stays absent if no process has it. One that is sparse anywhere
    becomes sparse everywhere, with the rows of all. Results are put in place only if ``write`` is set.

    Returns whether all processes average the batch of this ``number``. If they do not, nothing is changed.
    """
    world, short = dist.get_world_size(), number % COUNTED
    with torch.no_grad():
        trained = [p for p in parameters if p.is_leaf and p.requires_grad and not is_lazy(p)]
        small = [p for p in trained if not _is_sent_alone(p)]
        shares = [norm / world for norm in norms]
        shares += [buffer if dist.get_rank() == 0 else torch.zeros_like(buffer) for buffer in copied]
        flags = [short, short**2, *(p.grad is not None for p in trained), *map(_is_sparse, trained)]
        (total, squares, *counts), sums = _sums(flags, [*map(_dense, small), *shares], device)
        if total**2 != squares * world:  # the numbers are not all one
            return False
        anywhere = {id(p) for p, count in zip(trained, counts, strict=False) if count}
        sparse = {id(p) for p, count in zip(trained, counts[len(trained) :], strict=True) if count}
        large = [p for p in trained if _is_sent_alone(p) and id(p) in anywhere - sparse]
        wholes = _added_up([_dense(parameter).contiguous() for parameter in large])
        if write:
            for parameter, whole in zip((*small, *large), (*sums[: len(small)], *wholes), strict=True):
                if id(parameter) in anywhere - sparse:
                    _put(parameter, whole.div_(world))
            for buffer, value in zip((*norms, *copied), sums[len(small) :], strict=True):
                buffer.copy_(value)
        for parameter in trained:
            if id(parameter) in sparse:
                _average_rows(parameter, world)
    return True


def _sums(flags: list[int], values: list[Tensor], device: torch.device) -> tuple[list[float], list[Tensor]]:
    """Return sums over all processes, by one message; those of 16-bit numbers in 32 bits."""
    wide = torch.float64 if any(value.dtype is torch.float64 for value in values) else torch.float32
    parts = [torch.tensor(flags, dtype=wide), *(value.detach().reshape(-1) for value in values)]
    message = torch.cat([part.to(device, wide) for part in parts])
    dist.all_reduce(message)
    counts, *sums = torch.split(message, [len(part) for part in parts])
    return counts.tolist(), [part.view(value.shape) for part, value in zip(sums, values, strict=True)]


def _added_up(wholes: list[Tensor]) -> list[Tensor]:
    """Return ``wholes``, added up in place over all processes at the same time."""
    for work in [dist.all_reduce(whole, async_op=True) for whole in wholes]:
        work.wait()
    return wholes


def _is_sent_alone(parameter: Tensor) -> bool:
    return parameter.numel() >= LARGE or parameter.is_complex()


def _largest(number: int, device: torch.device) -> int:
    found = torch.tensor(number, device=device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return int(found)


def _is_sent(buffer: Tensor) -> bool:
    """Return True if a buffer is sent to all processes in each step."""
    return buffer.is_floating_point() and not buffer.is_sparse and buffer.numel() <= SMALL_BUFFER


def _average_rows(parameter: Tensor, world: int) -> None:
    """Average a sparse gradient: the rows that any process has."""
    whole = _dense(parameter).contiguous()
    rows = torch.zeros(len(parameter), dtype=parameter.dtype, device=parameter.device)
    if parameter.grad is not None:
        rows[parameter.grad.coalesce().indices()[0] if _is_sparse(parameter) else slice(None)] = 1
    _added_up([whole, rows])
    indices = rows.abs().nonzero().view(1, -1)
    parameter.grad = torch.sparse_coo_tensor(indices, whole.div_(world)[indices[0]], parameter.shape)


def _is_sparse(parameter: Tensor) -> bool:
    return parameter.grad is not None and parameter.grad.layout is not torch.strided


def _dense(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        return torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
    return parameter.grad.to_dense() if _is_sparse(parameter) else parameter.grad.detach()


def _put(parameter: Tensor, averaged: Tensor) -> None:
    gradient = parameter.grad
    if gradient is None:
        parameter.grad = torch.empty_like(parameter).copy_(averaged)
    elif gradient.data_ptr() != averaged.data_ptr():
        gradient.detach().copy_(averaged)


def _from_rank_zero(tensors: Sequence[Tensor], device: torch.device) -> bool:
    """Take rank 0's values in ``tensors``. Returns whether any process had others. What is read only is left out."""
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
    return not agreed(not differ, device)


def _writable(tensor: Tensor) -> bool:
    if is_lazy(tensor) or tensor.layout is not torch.strided or tensor.numel() == 0:
        return False
    return all(step != 0 or size == 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))
