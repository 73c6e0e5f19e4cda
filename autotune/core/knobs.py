"""The knob table: one row per knob. A row needs its applier in `autotune.runtime`; a test holds the two together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.core.backends import BACKENDS
from autotune.core.binding import refusals
from autotune.core.settings import ALLOCATORS, BINDINGS, COMPILE_MODES, OPTIMIZER_IMPLS, Settings
from autotune.core.task import TaskFacts
from probes.facts import Inventory

LEVELS = ("safe", "amp", "max")
"""Each level includes the ones before it."""

COMPILE_PAYBACK_SECONDS = 30 * 60
"""Training shorter than this is not worth trying compile for: each compiled trial costs up to a minute."""
COMPILE_BUDGET_SECONDS = 5 * 60
"""A few trials and a proof whose processes all compile do not fit into less."""
BF16_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16", "apple-amx")
"""CPU instructions without which bfloat16 is emulated, many times slower (pytorch/pytorch#118499)."""


@dataclass(frozen=True)
class Context:
    """Everything a knob's choices may depend on."""

    inventory: Inventory
    task: TaskFacts
    baseline: Settings
    train_seconds: float | None = None
    """How long the user means to train; None where not said."""
    gflops: Mapping[str, float] = field(default_factory=dict)
    """Measured rate of matrix products by precision, in 1e9 operations per second; empty where not measured."""
    budget_seconds: float = math.inf
    """What the run may take."""

    @property
    def cuda(self) -> bool:
        """True where trials run on a CUDA device."""
        return self.task.device == "cuda"


@dataclass(frozen=True)
class Choices:
    """Values offered for one knob and, for each value left out, the reason."""

    values: tuple[Any, ...]
    left_out: tuple[tuple[Any, str], ...] = ()


@dataclass(frozen=True)
class Knob:
    """One row of the table.

    Attributes:
        name: field of `Settings`.
        level: the first level at which the knob may move.
        applied: when it takes effect: ``launch``, ``start``, ``loader``, ``model`` or ``optimizer``.
        choices: values on this machine for this task.
        ordinal: True where values are ordered and a neighbour is one step away.
        what: one line for people.
    """

    name: str
    level: str
    applied: str
    choices: Callable[[Context], Choices] = field(repr=False)
    ordinal: bool
    what: str


def _processes(context: Context) -> Choices:
    budget, task, batch = context.inventory.budget, context.task, context.baseline.global_batch
    own = context.baseline.processes
    if context.cuda:
        usable = len(context.inventory.gpus)
        candidates = [count for count in powers_of_two(usable) if count > 1]
    else:
        nodes = sum(1 for node in context.inventory.cpu.nodes if set(node.cpus) & set(budget.cpus))
        counts = {*powers_of_two(min(budget.cores, 64)), nodes, context.inventory.cpu.packages}
        candidates = sorted(count for count in counts if 1 < count <= budget.threads)
    if task.processes_refused and (candidates or own > 1):
        others = (count for count in (1, *candidates) if count != own)
        return Choices((own,), tuple((count, task.processes_refused) for count in others))
    if not candidates:
        unit = "GPU" if context.cuda else "CPU"
        return Choices((1,), ((2, f"the budget is one {unit}"),))
    reason = _no_backend(context)
    if reason:
        return Choices((1,), tuple((count, reason) for count in candidates))
    divides = f"does not divide the global batch of {batch} equally"
    return Choices(
        (1, *(count for count in candidates if batch % count == 0)),
        tuple((count, divides) for count in candidates if batch % count),
    )


def _threads(context: Context) -> Choices:
    budget = context.inventory.budget
    slow = sum(cpu.kind == "efficiency" for cpu in context.inventory.cpu.logical if cpu.id in budget.cpus)
    counts = {*powers_of_two(budget.threads), budget.threads, budget.cores, budget.performance_cores}
    counts.add(len(budget.cpus) - slow)  # every SMT sibling of the fast cores
    for processes in _processes(context).values:
        counts.add(max(1, budget.threads // processes))
        counts.add(max(1, budget.cores // processes))
    return Choices(tuple(sorted(count for count in counts if 1 <= count <= budget.threads)))


def _interop_threads(context: Context) -> Choices:
    return Choices(tuple(sorted({1, context.baseline.interop_threads})))


def _backend(context: Context) -> Choices:
    """Every usable one, the device's usual one first."""
    usual, device = ("nccl", "cuda") if context.cuda else ("gloo", "cpu")
    found = context.inventory.software.backends
    usable = [b.name for b in found if b.usable and b.name in BACKENDS]
    left_out = [(b.name, b.reason) for b in found if not b.usable]
    other = [name for name in usable if name != usual]
    if context.cuda:
        left_out += [(name, "nccl exchanges between GPUs directly") for name in other]
        return Choices((usual,), tuple(left_out))
    offered = [name for name in other if device in BACKENDS[name].devices]
    left_out += [(name, f"not for tensors on the {device}") for name in other if name not in offered]
    first = [usual] if usual in usable or not offered else []
    return Choices((*first, *offered), tuple(left_out))


def _no_backend(context: Context) -> str | None:
    """Why no backend at all is usable, in the words of the first one offered; None where one is."""
    reasons = [backend_reason(context.inventory, name) for name in _backend(context).values]
    return reasons[0] if all(reasons) else None


def _data_parallel(context: Context) -> Choices:
    if not context.cuda:
        return Choices((False,), ((True, "no CUDA device"),))
    if len(context.inventory.gpus) < 2:
        return Choices((False,), ((True, "there is one GPU"),))
    return Choices((False, True))


def _binding(context: Context) -> Choices:
    refused = refusals(context.inventory)
    return Choices(tuple(name for name in BINDINGS if name not in refused), tuple(refused.items()))


def _num_workers(context: Context) -> Choices:
    budget, task = context.inventory.budget.threads, context.task
    most = min(budget, 32)
    if task.iterable:
        own = context.baseline.num_workers
        return Choices((own,), ((own + 1, "more workers would make other batches of an iterable dataset"),))
    counts = {0, 1, *powers_of_two(most), *(most * k // 4 for k in (1, 2, 3, 4))}
    if most <= 4:
        counts |= set(range(most + 1))
    return Choices(tuple(sorted(count for count in counts if count <= most)))


def _prefetch_factor(context: Context) -> Choices:
    return Choices((1, 2, 4, 8))


def _persistent_workers(context: Context) -> Choices:
    if context.baseline.persistent_workers:
        return Choices((True,), ((False, "your DataLoader keeps its workers"),))
    stale = "workers that outlive an epoch would not see a dataset that changes between epochs"
    return Choices((False,), ((True, f"{stale}; set it in your DataLoader and in CURRENT"),))


def _pin_memory(context: Context) -> Choices:
    if context.cuda:
        return Choices((False, True))
    return Choices((False,), ((True, "pinned memory only serves copies to an accelerator"),))


def _batch_size(context: Context) -> Choices:
    batch = context.baseline.global_batch
    sizes = {size for size in divisors(batch) if batch // size <= 64}
    return Choices(tuple(sorted(sizes)))


def _channels_last(context: Context) -> Choices:
    if context.task.has_convolutions:
        return Choices((False, True))
    return Choices((False,), ((True, "the model has no convolutions"),))


def _optimizer_impl(context: Context) -> Choices:
    offered = context.task.optimizer_impls
    reason = f"{context.task.optimizer} does not accept it on {context.task.device}"
    return Choices(offered, tuple((impl, reason) for impl in OPTIMIZER_IMPLS if impl not in offered))


def _allocator(context: Context) -> Choices:
    found = {allocator.name for allocator in context.inventory.software.allocators}
    if context.cuda:
        return Choices(("default",), (("jemalloc", "the step's memory is on the GPU"),))
    missing = tuple((name, "library not installed") for name in ALLOCATORS[1:] if name not in found)
    return Choices(tuple(name for name in ALLOCATORS if name == "default" or name in found), missing)


def _cudnn_benchmark(context: Context) -> Choices:
    if not context.cuda:
        return Choices((False,), ((True, "no CUDA device"),))
    if not context.task.has_convolutions:
        return Choices((False,), ((True, "the model has no convolutions"),))
    if context.task.sample_variation > 1.5:
        return Choices((False,), ((True, "sample shapes vary: every new shape would be benchmarked again"),))
    return Choices((False, True))


def _compile(context: Context) -> Choices:
    modes = COMPILE_MODES[1:] if context.cuda else ("default",)
    software = context.inventory.software
    if software.compiler is None:
        reason = software.compiler_reason or "no C++ compiler found"
    elif context.train_seconds is None:
        reason = "compiling takes up to a minute per trial; --train-time 10h lets it compete"
    elif context.train_seconds < COMPILE_PAYBACK_SECONDS:
        reason = "cannot pay back within --train-time"
    elif context.budget_seconds < COMPILE_BUDGET_SECONDS:
        reason = f"a proof with it does not fit into {context.budget_seconds:g} s: --budget 10m lets it compete"
    else:
        return Choices(("off", *modes))
    return Choices(("off",), tuple((mode, reason) for mode in modes))


def _precision(context: Context) -> Choices:
    inventory = context.inventory
    left_out: list[tuple[Any, str]] = []
    values = ["fp32"]
    if context.cuda:
        capability = min((gpu.capability for gpu in inventory.gpus), default=(0, 0))
        if capability >= (8, 0):
            values += ["tf32", "bf16"]
        else:
            left_out += [
                (name, f"needs capability 8.0, the GPU has {capability[0]}.{capability[1]}")
                for name in ("tf32", "bf16")
            ]
        if capability >= (7, 0):
            values.append("fp16")
        else:
            left_out.append(("fp16", "needs capability 7.0"))
        return Choices(tuple(values), tuple(left_out))
    if any(feature in BF16_FEATURES for feature in inventory.cpu.features):
        values.append("bf16")
    else:
        left_out.append(("bf16", "this CPU has no bfloat16 instructions"))
    left_out += [("fp16", "slow on CPUs, and gradient scaling is for accelerators"), ("tf32", "no CUDA device")]
    return Choices(tuple(values), tuple(left_out))


KNOBS: tuple[Knob, ...] = (
    Knob("processes", "safe", "launch", _processes, True, "training processes (DistributedDataParallel)"),
    Knob("threads", "safe", "start", _threads, True, "intra-op threads of each process"),
    Knob("interop_threads", "safe", "start", _interop_threads, True, "inter-op threads of each process"),
    Knob("backend", "safe", "launch", _backend, False, "gradient exchange between processes"),
    Knob(
        "data_parallel", "safe", "model", _data_parallel, False, "one process drives all GPUs (torch.nn.DataParallel)"
    ),
    Knob("binding", "safe", "launch", _binding, False, "CPUs and memory that each process keeps"),
    Knob("num_workers", "safe", "loader", _num_workers, True, "loader workers of each process"),
    Knob("prefetch_factor", "safe", "loader", _prefetch_factor, True, "batches each worker prepares ahead"),
    Knob("persistent_workers", "safe", "loader", _persistent_workers, False, "keep loader workers between epochs"),
    Knob("pin_memory", "safe", "loader", _pin_memory, False, "page-locked host batches"),
    Knob("batch_size", "safe", "loader", _batch_size, True, "samples per process"),
    Knob("channels_last", "safe", "model", _channels_last, False, "NHWC memory layout"),
    Knob("optimizer_impl", "safe", "optimizer", _optimizer_impl, False, "how the optimizer's update is computed"),
    Knob("allocator", "safe", "launch", _allocator, False, "host memory allocator"),
    Knob("cudnn_benchmark", "safe", "start", _cudnn_benchmark, False, "let cuDNN time its algorithms"),
    Knob("compile", "safe", "model", _compile, False, "torch.compile mode"),
    Knob("precision", "amp", "model", _precision, False, "precision of matrix products and convolutions"),
)

BY_NAME: dict[str, Knob] = {knob.name: knob for knob in KNOBS}


def includes(level: str, other: str) -> bool:
    """True where ``level`` allows everything that ``other`` allows."""
    return LEVELS.index(level) >= LEVELS.index(other)


def backend_reason(inventory: Inventory, name: str) -> str | None:
    """Why ``torch.distributed`` backend ``name`` cannot be used here; None where it can."""
    for backend in inventory.software.backends:
        if backend.name == name:
            return None if backend.usable else backend.reason
    return f"torch.distributed has no {name} backend here"


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ... up to and including ``most``."""
    return [1 << k for k in range(most.bit_length()) if 1 << k <= most]


def divisors(number: int) -> list[int]:
    """All positive divisors, ascending."""
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})
