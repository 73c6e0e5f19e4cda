"""Training processes, and the library that carries gradient sync between them."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from autotune.knobs.knob import LESS, MORE, ROUNDING, Choices, Context, Count, Knob, Word, offered, unless
from autotune.probes.facts import Backend, Inventory

MPIEXEC = "mpiexec"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class BackendRow:
    """One backend of ``torch.distributed``.

    Attributes:
        name: as ``init_process_group`` takes it.
        launcher: what starts the processes: ``torchrun`` or `MPIEXEC`.
        module: Python module that must be imported first to register it, or None. Scripts then start through
            ``autotune.scripts.entry``, which imports it and puts it in the place of the backend that they name.
        interface_variable: variable that names the network interface; set to the loopback for one machine, since a
            host name that does not resolve would stop it (pytorch/pytorch#74316). None if the backend needs none.
        waits_busily: a process that waits for the others keeps its core: every thread needs one of its own.
    """

    name: str
    launcher: str = "torchrun"
    module: str | None = None
    interface_variable: str | None = None
    waits_busily: bool = False


BACKENDS: dict[str, BackendRow] = {
    row.name: row
    for row in (
        BackendRow("gloo", interface_variable="GLOO_SOCKET_IFNAME"),
        BackendRow("nccl"),
        BackendRow("mpi", MPIEXEC, module="autotune.runtime.mpi", waits_busily=True),
        BackendRow("ccl", module="oneccl_bindings_for_pytorch"),
    )
}
"""By name. The probes find out if one is usable: it may be missing or broken."""


def why_not_usable(inventory: Inventory, name: str) -> str | None:
    """Return why ``torch.distributed`` backend ``name`` cannot be used here; None if it can."""
    for backend in inventory.software.backends:
        if backend.name == name:
            return None if backend.usable else backend.reason
    return f"torch.distributed has no {name} backend here"


def _backends(context: Context) -> Choices:
    """Return all that this machine has, the device's usual one first."""
    usual = context.device.backend
    found = [each for each in context.inventory.software.backends if each.name in BACKENDS or not each.usable]
    return {each.name: _why_not_for(each, context) for each in sorted(found, key=lambda each: each.name != usual)}


def _why_not_for(backend: Backend, context: Context) -> str | None:
    if not backend.usable:
        return backend.reason
    if not context.device.on_host:
        usual = context.device.backend
        return None if backend.name == usual else f"{usual} connects GPUs directly"
    return "not for tensors on the cpu" if backend.name == "nccl" else None


BACKEND = Knob(
    name="backend",
    live=False,
    words="over {}",
    kind=Word(tuple(BACKENDS)),
    neutral=None,
    applied="launch",
    choices=_backends,
    applies=lambda settings: settings.processes > 1,
    usual="gloo",
    adapted=lambda value, inventory: "gloo" if value == "nccl" and not inventory.gpus else value,
    dependent=True,
    keeps=ROUNDING,
    why={
        "gloo": "exchanges gradients between CPUs",
        "nccl": "exchanges gradients between GPUs",
        "mpi": "exchanges gradients over MPI",
        "ccl": "exchanges gradients with oneCCL",
        None: "one process needs no gradient sync",
    },
    plain=lambda plan: f'torch.distributed.init_process_group("{plan.torchrun_backend}")',
)


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, ... up to and including ``most``."""
    return [1 << k for k in range(most.bit_length()) if 1 << k <= most]


def _processes(context: Context) -> Choices:
    budget, task, batch = context.inventory.budget, context.task, context.baseline.global_batch
    own = context.baseline.processes
    if not context.device.on_host:
        usable = len(context.inventory.gpus)
        candidates = [count for count in powers_of_two(usable) if count > 1]
    else:
        nodes = sum(1 for node in context.inventory.cpu.nodes if set(node.cpus) & set(budget.cpus))
        counts = {*powers_of_two(min(budget.cores, 64)), nodes, context.inventory.cpu.packages}
        candidates = sorted(count for count in counts if 1 < count <= budget.threads)
    if task.why_not_several and (candidates or own > 1):
        return unless(task.why_not_several, own, *(count for count in (1, *candidates) if count != own))
    if not candidates:
        return unless(f"the budget is one {'CPU' if context.device.on_host else 'GPU'}", 1, 2)
    if not offered(_backends(context)):
        return unless(why_not_usable(context.inventory, context.device.backend), 1, *candidates)
    divides = f"does not divide the global batch of {batch} equally"
    return {count: divides if batch % count else None for count in (1, *candidates)}


PROCESSES = Knob(
    name="processes",
    live=False,
    kind=Count(1, 1024),
    neutral=1,
    applied="launch",
    choices=_processes,
    keeps=ROUNDING,
    why={MORE: "uses cores or GPUs that sat idle", LESS: "less gradient sync"},
    plain=lambda plan: f"start {plan.settings.processes} processes: {plan.command}",
)
