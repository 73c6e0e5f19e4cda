"""Intra-op and inter-op threads."""

from __future__ import annotations

from typing import Any

from autotune.knobs import exported as to
from autotune.knobs.backend import offered_processes
from autotune.knobs.change import Change, Changed, Refused, Training
from autotune.knobs.exported import CODE, Line, Plan, Said
from autotune.knobs.knob import LESS, MORE, ROUNDING, Choices, Chosen, Context, Count, Effect, Knob, powers_of_two


def _threads(context: Context) -> Choices:
    budget = context.inventory.budget
    slow = sum(cpu.kind == "efficiency" for cpu in context.inventory.cpu.logical if cpu.id in budget.cpus)
    counts = {*powers_of_two(budget.threads), budget.threads, budget.cores, budget.performance_cores}
    counts.add(len(budget.cpus) - slow)  # every SMT sibling of the fast cores
    for processes in offered_processes(context).values:
        counts |= {max(1, budget.threads // processes), max(1, budget.cores // processes)}
    return Choices(tuple(sorted(count for count in counts if 1 <= count <= budget.threads)))


def _shared_cores(before: Any, after: Any, settings: Chosen) -> str | None:
    shared = settings.processes > 1 and after < before
    return f"{settings.processes} processes share the cores" if shared else None


def _start_threads(value: int, _training: Training) -> Change | None:
    import torch

    def read() -> str | None:
        found = torch.get_num_threads()
        return None if found == value else f"asked {value}, {found} are in force"

    before = torch.get_num_threads()
    if before == value:
        return None
    torch.set_num_threads(value)
    return Changed(lambda: torch.set_num_threads(before), read)


def _set(settings: Chosen) -> str:
    return f"torch.set_num_threads({settings.threads})"


def _lightning(plan: Plan) -> Said:
    """Set the variable too: without it Lightning sets threads itself, and its own processes inherit it."""
    variable = f'os.environ["OMP_NUM_THREADS"] = "{plan.settings.threads}"'
    return Line(CODE, variable), Line(CODE, _set(plan.settings))


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
    keeps=ROUNDING,
    start=_start_threads,
    plain=lambda plan: _set(plan.settings),
    export={**to.statement(_set), to.LIGHTNING: _lightning, **to.in_shells("OMP_NUM_THREADS")},
)


def _start_interop(value: int, _training: Training) -> Change | None:
    """Set them, before the first parallel work: PyTorch takes them once per process, and never back."""
    import torch

    found = torch.get_num_interop_threads()
    if found != value:
        try:
            torch.set_num_interop_threads(value)
        except RuntimeError:
            return Refused(f"too late: {found} are in force since the first parallel work; start with autotune run")
    return None


def _set_interop(settings: Chosen) -> str:
    return f"torch.set_num_interop_threads({settings.interop_threads})"


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
    start=_start_interop,
    plain=lambda plan: f"{_set_interop(plan.settings)}, before any parallel work",
    export=to.statement(_set_interop),
)
