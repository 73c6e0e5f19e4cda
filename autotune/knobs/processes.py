"""Training processes."""

from __future__ import annotations

from autotune.knobs import exported as to
from autotune.knobs.backend import offered_backends, why_not_usable
from autotune.knobs.exported import ARGUMENTS, COMMAND, CONFIG, START, TRAINER, Line, Plan, Said
from autotune.knobs.knob import LESS, MORE, ROUNDING, Choices, Context, Count, Knob, powers_of_two


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


def _no_backend(context: Context) -> str | None:
    """Return why no backend at all is usable, in the words of the first one offered; None if one is."""
    reasons = [why_not_usable(context.inventory, name) for name in offered_backends(context).values]
    return reasons[0] if all(reasons) else None


def _accelerate(plan: Plan) -> Said:
    kind = "NO" if plan.settings.processes == 1 else "MULTI_CPU" if plan.device == "cpu" else "MULTI_GPU"
    return (
        Line(CONFIG, f"distributed_type: '{kind}'"),
        Line(CONFIG, f"num_processes: {plan.settings.processes}"),
        Line(CONFIG, f"use_cpu: {str(plan.device == 'cpu').lower()}"),
    )


def _lightning(plan: Plan) -> Said:
    accelerator = "gpu" if plan.device == "cuda" else "cpu"
    return Line(TRAINER, f'accelerator="{accelerator}"'), Line(TRAINER, f"devices={plan.settings.processes}")


def _transformers(plan: Plan) -> Said:
    """Start it on one GPU: one process that sees several makes `Trainer` use `torch.nn.DataParallel`."""
    device = (Line(ARGUMENTS, "use_cpu=True"),) if plan.device == "cpu" else ()
    if plan.settings.processes > 1:
        return *device, Line(START, plan.command)
    return *device, *((Line(START, f"CUDA_VISIBLE_DEVICES=0 {plan.command}"),) if plan.gpus > 1 else ())


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
    export={
        to.TORCHRUN: lambda _plan: (Line(COMMAND),),
        to.ACCELERATE: _accelerate,
        to.LIGHTNING: _lightning,
        to.TRANSFORMERS: _transformers,
    },
)
