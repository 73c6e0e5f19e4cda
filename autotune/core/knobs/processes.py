"""Knobs of how work is shared out: processes, threads, what exchanges gradients, where each process runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.backends import BACKENDS, why_not_usable
from autotune.core.binding import BINDINGS, why_not_offered
from autotune.core.knobs.knob import (
    LESS,
    MORE,
    SERVER_SECONDS,
    Choices,
    Chosen,
    Context,
    Count,
    Effect,
    Flag,
    Knob,
    Word,
    divisors,
    powers_of_two,
)


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
    if task.why_not_several and (candidates or own > 1):
        others = (count for count in (1, *candidates) if count != own)
        return Choices((own,), tuple((count, task.why_not_several) for count in others))
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


PROCESSES = Knob(
    name="processes",
    what="training processes (DistributedDataParallel)",
    offered="powers of two, sockets and NUMA nodes within the CPU budget; GPUs",
    kind=Count(1, 1024),
    neutral=1,
    applied="launch",
    choices=_processes,
    why={MORE: "uses cores or GPUs that sat idle", LESS: "less gradient exchange"},
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


def _shared_cores(before: Any, after: Any, settings: Chosen) -> str | None:
    shared = settings.processes > 1 and after < before
    return f"{settings.processes} processes share the cores" if shared else None


THREADS = Knob(
    name="threads",
    what="intra-op threads of each process",
    offered="powers of two, cores, and shares of the CPU budget",
    kind=Count(1, 4096),
    neutral=1,
    choices=_threads,
    unsaid=lambda inventory: inventory.software.default_threads or inventory.budget.threads,
    why={MORE: "kernels are large enough for more cores", LESS: "more threads only waited for each other"},
    explained=_shared_cores,
    applier="threads:Threads",
)

INTEROP_THREADS = Knob(
    name="interop_threads",
    what="inter-op threads of each process",
    offered="1 and yours",
    kind=Count(1, 4096),
    neutral=1,
    choices=lambda context: Choices(tuple(sorted({1, context.baseline.interop_threads}))),
    unsaid=lambda inventory: inventory.software.default_interop_threads or inventory.budget.cores,
    fitted=lambda value, inventory: min(value, max(inventory.budget.threads, len(inventory.cpu.logical))),
    why={MORE: "independent operators run side by side", LESS: "leaves the cores to the kernels"},
    effect=Effect(0.03, 2.0),
    acts_on=("compute",),
    applier="threads:InteropThreads",
)

OMP_WAIT_POLICY = "OMP_WAIT_POLICY"
WAIT_VARIABLES = (OMP_WAIT_POLICY, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What says how OpenMP's threads wait."""
BESIDE_CPUS = 0.3
"""From so many processors that others keep busy, threads that spin wait for one that does not run."""
PASSIVE_GAIN = 0.5
"""Expected beside a neighbour (docs/decisions/023): 1.5 to 30 times were measured."""


def own_waiting(policy: str, variables: Mapping[str, str]) -> str | None:
    """The user's own variable that may let threads wait otherwise than ``policy`` says; None if there is none."""
    same = variables.get(OMP_WAIT_POLICY, "").strip().lower() == policy
    return next((name for name in WAIT_VARIABLES[same:] if name in variables), None)


def _omp_wait_policy(context: Context) -> Choices:
    reason = _why_not_passive(context)
    return Choices(("default",), (("passive", reason),)) if reason else Choices(("default", "passive"))


def _why_not_passive(context: Context) -> str | None:
    own = [f"{name}={value}" for name, value in context.inventory.software.environment if name in WAIT_VARIABLES]
    if own:
        return f"{own[0]} is yours and stays"
    if context.cuda:
        return "training is on the GPU"
    if context.neighbours < BESIDE_CPUS:
        return f"helps if others take {BESIDE_CPUS} CPUs or more; before the search they took {context.neighbours:.1f}"
    return None


OMP_WAIT = Knob(
    name="omp_wait_policy",
    what="how OpenMP's threads wait for each other",
    words="{} waiting",
    offered="default (they spin), passive (they sleep), if others take 0.3 CPUs or more; CPU training only",
    kind=Word(("default", "passive")),
    neutral="default",
    applied="launch",
    choices=_omp_wait_policy,
    devices=("cpu",),
    applies=lambda settings: settings.threads > 1,
    why={"passive": "threads sleep beside other processes", "default": "threads that spin go on sooner"},
    effect=Effect(0.3),
    gain=lambda settings, _context: PASSIVE_GAIN * (settings.omp_wait_policy == "passive"),
    acts_on=("compute",),
    first_seconds={"passive": SERVER_SECONDS},
    inherited=True,
    added_later=True,
    applier="threads:OmpWaitPolicy",
)


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
    reasons = [why_not_usable(context.inventory, name) for name in _backend(context).values]
    return reasons[0] if all(reasons) else None


BACKEND = Knob(
    name="backend",
    what="gradient exchange between processes",
    words="over {}",
    offered="on CPUs gloo, mpi and ccl as far as they are usable, on GPUs nccl; others are listed with the reason",
    kind=Word(tuple(BACKENDS)),
    neutral=None,
    applied="launch",
    choices=_backend,
    applies=lambda settings: settings.processes > 1,
    usual="gloo",
    fitted=lambda value, inventory: "gloo" if value == "nccl" and not inventory.gpus else value,
    follows=True,
    why={
        "gloo": "exchanges gradients between CPUs",
        "nccl": "exchanges gradients between GPUs",
        "mpi": "exchanges gradients over MPI",
        "ccl": "exchanges gradients with oneCCL",
        None: "one process exchanges nothing",
    },
)


def _data_parallel(context: Context) -> Choices:
    if not context.cuda:
        return Choices((False,), ((True, "no CUDA device"),))
    if len(context.inventory.gpus) < 2:
        return Choices((False,), ((True, "there is one GPU"),))
    return Choices((False, True))


DATA_PARALLEL = Knob(
    name="data_parallel",
    what="one process drives all GPUs (torch.nn.DataParallel)",
    offered="off, on, with several GPUs; the report says what it costs",
    kind=Flag(),
    neutral=False,
    applied="model",
    choices=_data_parallel,
    applies=lambda settings: settings.processes == 1,
    devices=("cuda",),
    fitted=lambda value, inventory: value and len(inventory.gpus) > 1,
    why={True: "one process keeps every GPU at work", False: "no copying of the model at each step"},
    effect=Effect(0.40),
    changes_memory=("host", "device", "shm"),
    applier="data_parallel:DataParallel",
    added_later=True,
)


def _binding(context: Context) -> Choices:
    reasons = why_not_offered(context.inventory)
    return Choices(tuple(name for name in BINDINGS if name not in reasons), tuple(reasons.items()))


BINDING = Knob(
    name="binding",
    what="CPUs and memory that each process keeps",
    words="bound to {}",
    offered="none; cores where CPUs are left to choose from; numa with several nodes; Linux without a CPU quota",
    kind=Word(BINDINGS),
    neutral="none",
    applied="launch",
    choices=_binding,
    follows=True,
    why={
        "cores": "each process keeps its cores and caches",
        "numa": "memory stays near each process's cores",
        "none": "the scheduler places threads better",
    },
    effect=Effect(0.05),
    applier="binding:Binding",
    added_later=True,
)


def _batch_size(context: Context) -> Choices:
    batch = context.baseline.global_batch
    return Choices(tuple(sorted(size for size in divisors(batch) if batch // size <= 64)))


BATCH_SIZE = Knob(
    name="batch_size",
    what="samples per process",
    words="batch {}",
    offered="at the same global batch; at `max` up to 32 times yours",
    kind=Count(1, 2**24),
    neutral=1,
    applied="loader",
    choices=_batch_size,
    follows=True,
    why={MORE: "larger kernels use the hardware better", LESS: "smaller pieces fit caches and memory"},
)
