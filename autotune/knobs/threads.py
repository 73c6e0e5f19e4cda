"""Threads: intra-op, inter-op, and how those of OpenMP wait for each other.

The wait policy is read when PyTorch is imported, so a running process can only check it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from autotune.devices import CPU
from autotune.knobs.backend import PROCESSES, powers_of_two
from autotune.knobs.change import Change, Refused, Training
from autotune.knobs.knob import (
    LESS,
    MORE,
    ROUNDING,
    SERVER_SECONDS,
    Choices,
    Chosen,
    Context,
    Count,
    Knob,
    Start,
    Variables,
    Word,
    offered,
    unless,
)

OMP_NUM_THREADS = "OMP_NUM_THREADS"


def _threads(context: Context) -> Choices:
    budget = context.inventory.budget
    slow = sum(cpu.kind == "efficiency" for cpu in context.inventory.cpu.logical if cpu.id in budget.cpus)
    counts = {*powers_of_two(budget.threads), budget.threads, budget.cores, budget.performance_cores}
    counts.add(len(budget.cpus) - slow)  # every SMT sibling of the fast cores
    for processes in offered(PROCESSES.choices(context)):
        counts |= {max(1, budget.threads // processes), max(1, budget.cores // processes)}
    return dict.fromkeys(sorted(count for count in counts if 1 <= count <= budget.threads))


def _start_threads(value: int, _training: Training) -> Change | None:
    import torch

    def read() -> str | None:
        found = torch.get_num_threads()
        return None if found == value else f"asked {value}, {found} are in force"

    before = torch.get_num_threads()
    if before == value:
        return None
    torch.set_num_threads(value)
    return Change(lambda: torch.set_num_threads(before), read)


def _counted(settings: Chosen, start: Start) -> Variables:
    """Return the number for several processes, as torchrun would set 1; one process sets its threads itself."""
    wanted = settings.processes > 1 or start.plain
    return Variables.unless_own({OMP_NUM_THREADS: str(settings.threads)} if wanted else {}, start)


THREADS = Knob(
    name="threads",
    words="{} thread{s}",
    kind=Count(1, 4096),
    neutral=1,
    choices=_threads,
    pytorch_default=lambda inventory: inventory.software.default_threads or inventory.budget.threads,
    why={MORE: "kernels are large enough for more cores", LESS: "fewer threads wait for each other"},
    keeps=ROUNDING,
    variables=_counted,
    start=_start_threads,
    plain=lambda plan: f"torch.set_num_threads({plan.settings.threads})",
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


INTEROP_THREADS = Knob(
    name="interop_threads",
    live=False,
    kind=Count(1, 4096),
    neutral=1,
    choices=lambda context: dict.fromkeys(sorted({1, context.baseline.interop_threads})),
    pytorch_default=lambda inventory: inventory.software.default_interop_threads or inventory.budget.cores,
    adapted=lambda value, inventory: min(value, max(inventory.budget.threads, len(inventory.cpu.logical))),
    why={MORE: "independent operators run side by side", LESS: "leaves the cores to the kernels"},
    spread=0.03,
    length=2.0,
    start=_start_interop,
    plain=lambda plan: f"torch.set_num_interop_threads({plan.settings.interop_threads})  # before any parallel work",
)

OMP_WAIT_POLICY = "OMP_WAIT_POLICY"
WAIT_VARIABLES = (OMP_WAIT_POLICY, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables that set how OpenMP's threads wait."""
BESIDE_CPUS = 0.3
"""If others keep at least this many processors busy, threads spin for one that does not run."""
PASSIVE_GAIN = 0.5
"""Expected beside a neighbour (docs/decisions/023): 1.5 to 30 times were measured."""


def own_waiting(policy: str, variables: Mapping[str, str]) -> str | None:
    """Return the user's own variable that may contradict ``policy``, or None."""
    same = variables.get(OMP_WAIT_POLICY, "").strip().lower() == policy
    return next((name for name in WAIT_VARIABLES[same:] if name in variables), None)


def _waiting(settings: Chosen, start: Start) -> Variables:
    policy = settings.omp_wait_policy
    if policy == "default":
        return Variables()
    if own := own_waiting(policy, start.own):
        return Variables(kept={own: policy if own == OMP_WAIT_POLICY else f"{OMP_WAIT_POLICY}={policy}"})
    return Variables({} if OMP_WAIT_POLICY in start.own else {OMP_WAIT_POLICY: policy})


def _why_not_passive(context: Context) -> str | None:
    own = [f"{name}={value}" for name, value in context.inventory.software.environment if name in WAIT_VARIABLES]
    if own:
        return f"{own[0]} is yours and stays"
    if context.neighbours < BESIDE_CPUS:
        return f"only tried if other programs use at least {BESIDE_CPUS} CPUs (now: {context.neighbours:.1f})"
    return None


def _why_not_waiting(policy: str) -> str | None:
    """Read back: return why threads of this process may wait otherwise, or None."""
    if own := own_waiting(policy, os.environ):
        return f"{own}={os.environ[own]} is yours and stays"
    if OMP_WAIT_POLICY in os.environ:
        return None
    return f"{OMP_WAIT_POLICY} must be {policy} before Python starts; autotune run sets it"


OMP_WAIT = Knob(
    name="omp_wait_policy",
    live=False,
    words="{} waiting",
    kind=Word(("default", "passive")),
    neutral="default",
    applied="launch",
    choices=lambda context: unless(_why_not_passive(context), "default", "passive"),
    devices=(CPU,),
    applies=lambda settings: settings.threads > 1,
    why={"passive": "threads sleep beside other processes", "default": "threads that spin go on sooner"},
    spread=0.3,
    gain=lambda settings, _context: PASSIVE_GAIN * (settings.omp_wait_policy == "passive"),
    first_seconds={"passive": SERVER_SECONDS},
    variables=_waiting,
    inherited=True,
    start=lambda value, _training: Change(read=lambda: _why_not_waiting(value)),
    plain=lambda plan: plan.start_with(OMP_WAIT_POLICY),
)
