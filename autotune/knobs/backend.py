"""Training processes, and the library that exchanges gradients between them."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.knobs.choices import Choices, by_reason, powers_of_two, unless
from autotune.knobs.knob import LESS, MORE, ROUNDING, Context, Count, Knob, Word
from autotune.probes.facts import Inventory

TORCHRUN = "torchrun"
MPIEXEC = "mpiexec"


@dataclass(frozen=True)
class BackendRow:
    """One backend of ``torch.distributed``.

    Attributes:
        name: as ``init_process_group`` takes it.
        devices: kinds of device whose gradients it exchanges.
        launcher: what starts the processes: `TORCHRUN` or `MPIEXEC`.
        module: Python module that must be imported first to register it, or None. Scripts then start through
            ``autotune.runtime.entry``, which imports it and puts it in the place of the backend that they name.
        interface_variable: variable that names the network interface; set to the loopback for one machine, where a
            host name that resolves to nothing would otherwise stop it (pytorch/pytorch#74316). None where the
            backend finds its way by itself.
        waits_busily: a process that waits for the others keeps its core: every thread needs one of its own.
    """

    name: str
    devices: tuple[str, ...]
    launcher: str = TORCHRUN
    module: str | None = None
    interface_variable: str | None = None
    waits_busily: bool = False


BACKENDS: dict[str, BackendRow] = {
    row.name: row
    for row in (
        BackendRow("gloo", ("cpu", "cuda"), interface_variable="GLOO_SOCKET_IFNAME"),
        BackendRow("nccl", ("cuda",)),
        BackendRow("mpi", ("cpu",), MPIEXEC, module="autotune.runtime.mpi", waits_busily=True),
        BackendRow("ccl", ("cpu",), module="oneccl_bindings_for_pytorch"),
    )
}
"""By name. Whether one is usable on a machine is the probes' answer: it may be missing or broken."""


def why_not_usable(inventory: Inventory, name: str) -> str | None:
    """Return why ``torch.distributed`` backend ``name`` cannot be used here; None if it can."""
    for backend in inventory.software.backends:
        if backend.name == name:
            return None if backend.usable else backend.reason
    return f"torch.distributed has no {name} backend here"


def offered_backends(context: Context) -> Choices:
    """Return every usable one, the device's usual one first."""
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


BACKEND = Knob(
    name="backend",
    what="gradient exchange between processes",
    words="over {}",
    offered="on CPUs gloo, mpi and ccl as far as they are usable, on GPUs nccl; others are listed with the reason",
    kind=Word(tuple(BACKENDS)),
    neutral=None,
    applied="launch",
    choices=offered_backends,
    applies=lambda settings: settings.processes > 1,
    usual="gloo",
    fitted=lambda value, inventory: "gloo" if value == "nccl" and not inventory.gpus else value,
    follows=True,
    keeps=ROUNDING,
    why={
        "gloo": "exchanges gradients between CPUs",
        "nccl": "exchanges gradients between GPUs",
        "mpi": "exchanges gradients over MPI",
        "ccl": "exchanges gradients with oneCCL",
        None: "one process exchanges nothing",
    },
    plain=lambda plan: f'torch.distributed.init_process_group("{plan.exchange}")',
)


def offered_processes(context: Context) -> Choices:
    """Return the numbers of processes that can share the global batch here."""
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
        return unless(task.why_not_several, own, *(count for count in (1, *candidates) if count != own))
    if not candidates:
        return unless(f"the budget is one {'GPU' if context.cuda else 'CPU'}", 1, 2)
    missing = [why_not_usable(context.inventory, name) for name in offered_backends(context).values]
    if all(missing):
        return unless(missing[0], 1, *candidates)
    divides = f"does not divide the global batch of {batch} equally"
    return by_reason({count: divides if batch % count else None for count in (1, *candidates)})


PROCESSES = Knob(
    name="processes",
    what="training processes (DistributedDataParallel)",
    offered="powers of two, sockets and NUMA nodes within the CPU budget; GPUs",
    kind=Count(1, 1024),
    neutral=1,
    applied="launch",
    choices=offered_processes,
    keeps=ROUNDING,
    why={MORE: "uses cores or GPUs that sat idle", LESS: "less gradient exchange"},
    plain=lambda plan: f"start {plan.settings.processes} processes: {plan.command}",
)
