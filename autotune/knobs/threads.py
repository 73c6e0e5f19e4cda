"""Intra-op threads."""

from __future__ import annotations

from typing import Any

from autotune.knobs.exported import CODE, LIGHTNING, Line, Plan, Said, in_environment, in_shells, statement
from autotune.knobs.knob import (
    LESS,
    MORE,
    ROUNDING,
    Change,
    Changed,
    Choices,
    Chosen,
    Context,
    Count,
    Knob,
    Training,
    powers_of_two,
)
from autotune.knobs.processes import offered_processes


def _threads(context: Context) -> Choices:
    budget = context.inventory.budget
    slow = sum(cpu.kind == "efficiency" for cpu in context.inventory.cpu.logical if cpu.id in budget.cpus)
    counts = {*powers_of_two(budget.threads), budget.threads, budget.cores, budget.performance_cores}
    counts.add(len(budget.cpus) - slow)  # every SMT sibling of the fast cores
    for processes in offered_processes(context).values:
        counts.add(max(1, budget.threads // processes))
        counts.add(max(1, budget.cores // processes))
    return Choices(tuple(sorted(count for count in counts if 1 <= count <= budget.threads)))


def _shared_cores(before: Any, after: Any, settings: Chosen) -> str | None:
    shared = settings.processes > 1 and after < before
    return f"{settings.processes} processes share the cores" if shared else None


def _start(value: int, _training: Training) -> Change | None:
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
    """Lightning sets threads itself if the variable is not set, and its own processes inherit it."""
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
    start=_start,
    plain=lambda plan: _set(plan.settings),
    export={
        **statement(_set),
        LIGHTNING: _lightning,
        **in_shells(in_environment("OMP_NUM_THREADS")),
    },
)
