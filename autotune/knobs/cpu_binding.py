"""Bind this process and its loader workers to CPUs, and read back what is in force. Imports no PyTorch.

What is promised is the process's CPU mask: the scheduler still moves threads within it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

from autotune.knobs import memory_policy
from autotune.knobs.affinity import Affinity, cpu_list

TASKS = Path("/proc/self/task")
OPENMP_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""The user's own words that move threads to single CPUs within the mask; they win."""


def bind(affinity: Affinity) -> None:
    """Keep this thread, and all that it starts from now on, on ``affinity``: call it while there is one thread.

    The memory policy is taken as far as it is permitted, see `memory_note`.

    Raises:
        OSError: the CPUs are not this process's to use.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise OSError("this system has no CPU masks")
    os.sched_setaffinity(0, affinity.cpus)
    if affinity.memory:
        with contextlib.suppress(OSError):
            memory_policy.take_from(affinity.memory)


def why_not(asked: str, affinity: Affinity | None) -> str | None:
    """Read back: why binding ``asked`` is not in force in every thread of this process, or None."""
    if asked == "none":
        return None
    if affinity is None:
        return "this process was not started on CPUs of its own; only autotune run can do that"
    found = _cpus_of_threads()
    narrowed = found < set(affinity.cpus) and any(name in os.environ for name in OPENMP_BINDING)
    if narrowed or found == set(affinity.cpus):
        return None
    return f"asked CPUs {cpu_list(affinity.cpus)}, threads run on {cpu_list(found)}"


def memory_note(affinity: Affinity | None) -> str | None:
    """Read back: what became of the memory policy, where it is not what was asked; None where it is."""
    if affinity is None or not affinity.memory:
        return None
    wanted = f"memory is not bound to NUMA node {cpu_list(affinity.memory)}"
    try:
        mode, nodes = memory_policy.policy()
    except OSError as error:
        return f"{wanted}, as far as can be told: {error.strerror or error}; the CPUs are bound"
    if (mode, nodes) == (memory_policy.BIND, affinity.memory):
        return None
    if mode == memory_policy.PREFERRED and set(nodes) & set(affinity.memory):
        return f"{wanted}, only preferred there; the CPUs are bound"
    return f"{wanted}: the kernel refused (containers need CAP_SYS_NICE); the CPUs are bound"


def _cpus_of_threads() -> set[int]:
    """CPUs on which any thread of this process may run."""
    found: set[int] = set()
    for task in TASKS.iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
            found |= os.sched_getaffinity(int(task.name))
    return found


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
