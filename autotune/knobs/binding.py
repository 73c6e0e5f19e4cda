"""The CPUs that each process keeps: bind it and its loader workers, and read back what is in force.

What is promised is the process's CPU mask: the scheduler still moves threads within it, and the kernel takes memory
from the node of the thread that touches it first. Imports no PyTorch.

``python -m autotune.knobs.binding COMMAND ...`` starts one training process on its own CPUs: it binds by the plan in
the environment and the process's local rank, then becomes ``COMMAND``. The mask outlives that, and the
script runs as if it had been started by itself. `autotune run` puts this before the script.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.knobs import exported as to
from autotune.knobs.affinity import BINDINGS, cpu_list, own_affinity, why_not_offered
from autotune.knobs.change import Affinity, Change, Training
from autotune.knobs.exported import COMMAND, START, Line, Missing, Plan, Said
from autotune.knobs.knob import Choices, Chosen, Context, Effect, Knob, Word, by_reason

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

TASKS = Path("/proc/self/task")
OPENMP_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""The user's own words that move threads to single CPUs within the mask; they win."""


def bind_by_plan() -> str | None:
    """Bind this process by the plan and the local rank in its environment; return why that failed, or None.

    Call it while there is one thread: what this one starts from now on is bound too.
    """
    affinity = own_affinity(os.environ)
    if affinity is None:
        return None
    if not hasattr(os, "sched_setaffinity"):
        return "this system has no CPU masks"
    try:
        os.sched_setaffinity(0, affinity.cpus)
    except OSError as error:  # the CPUs are not this process's to use
        return error.strerror or str(error)
    return None


def _why_not(affinity: Affinity | None) -> str | None:
    """Read back: return why ``affinity`` is not in force in every thread of this process, or None."""
    if affinity is None:
        return "this process was not started on CPUs of its own; only autotune run can do that"
    found: set[int] = set()
    for task in TASKS.iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
            found |= os.sched_getaffinity(int(task.name))
    narrowed = found < set(affinity.cpus) and any(name in os.environ for name in OPENMP_BINDING)
    if narrowed or found == set(affinity.cpus):
        return None
    return f"asked CPUs {cpu_list(affinity.cpus)}, threads run on {cpu_list(found)}"


class WorkerAffinity:
    """A ``worker_init_fn`` that moves each loader worker to ``cpus`` and then calls the user's own.

    A worker starts where the thread that made it runs: one core under OpenMP binding (pytorch/pytorch#101850).

    Attributes:
        cpus: where workers run.
        then: the user's ``worker_init_fn``.
        missed: shared with the workers: 1 once one of them did not get its CPUs.
    """

    def __init__(self, cpus: tuple[int, ...], then: Callable[[int], None] | None) -> None:
        self.cpus, self.then = cpus, then
        self.missed = multiprocessing.RawValue("i", 0)

    def __call__(self, worker: int) -> None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self.cpus)
        if os.sched_getaffinity(0) != set(self.cpus):
            self.missed.value = 1
        if self.then is not None:
            self.then(worker)

    @property
    def why_not(self) -> str | None:
        """Read back: why workers are not where they belong, or None."""
        return f"loader workers did not get CPUs {cpu_list(self.cpus)}" if self.missed.value else None


class _Bound(Change):
    """CPUs that were bound before this process started, read back."""

    def __init__(self, affinity: Affinity | None) -> None:
        self._affinity = affinity
        self.workers: list[WorkerAffinity] = []

    def why_not(self) -> str | None:
        """Return why threads or workers are not where they belong, or None."""
        missed = next(filter(None, (workers.why_not for workers in self.workers)), None)
        return _why_not(self._affinity) or missed


def _on_loader(settings: Chosen, loader: DataLoader[Any], training: Training) -> dict[str, Any]:
    """Let loader workers run on the CPUs beside the compute threads."""
    bound = training.started.get("binding")
    if not isinstance(bound, _Bound) or training.affinity is None or settings.num_workers == 0:
        return {}
    bound.workers.append(WorkerAffinity(training.affinity.workers, loader.worker_init_fn))
    return {"worker_init_fn": bound.workers[-1]}


def _binding(context: Context) -> Choices:
    reasons = why_not_offered(context.inventory)
    return by_reason({name: reasons.get(name) for name in BINDINGS})


def _torchrun(plan: Plan) -> Said:
    return () if plan.settings.binding == "none" else (Line(COMMAND),)


def _accelerate(plan: Plan) -> Said:
    """Bind by torchrun's command, which starts several processes on CPUs; Accelerate's own starter does not bind."""
    several = plan.device == "cpu" and plan.settings.processes > 1
    return _torchrun(plan) if several or plan.settings.binding == "none" else (Missing(),)


def _transformers(plan: Plan) -> Said:
    return () if plan.settings.binding == "none" else (Line(START, plan.command),)


BINDING = Knob(
    name="binding",
    what="CPUs that each process keeps",
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
    start=lambda _value, training: _Bound(training.affinity),
    on_loader=_on_loader,
    plain=lambda plan: f"start processes on their CPUs: {plan.command}",
    export={to.TORCHRUN: _torchrun, to.ACCELERATE: _accelerate, to.TRANSFORMERS: _transformers},
)


def main(command: list[str]) -> None:
    """Bind, and become ``command``. Training goes on if binding fails."""
    if (reason := bind_by_plan()) is not None:
        sys.stderr.write(f"autotune: binding not applied: {reason}\n")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
