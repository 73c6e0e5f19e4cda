"""The list of the probes: `probe` runs them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from autotune.probes import budget, cpu, gpu, memory, software
from autotune.probes.facts import Cpu, CpuBudget, Gpu, Inventory, LogicalCpu, Memory, ResourceLimits, Software
from autotune.probes.system import System

T = TypeVar("T")


def probe(system: System | None = None, nvml: Any = None, *, quick: bool = False) -> Inventory:
    """Find everything about this machine, or a recorded one; ``nvml`` stands in for pynvml.

    With ``quick``, PyTorch is not started if it need not be: backends and its defaults are not known then.

    Never raises: a probe that fails leaves a note and a conservative value.
    """
    system = system or System()
    notes: list[str] = []

    def ask(name: str, question: Callable[[], T], fallback: T) -> T:
        try:
            return question()
        except Exception as error:  # one probe that fails must not stop the others
            notes.append(
                f"The {name} probe failed ({type(error).__name__}: {error}); a conservative guess is used instead."
            )
            return fallback

    allowed = tuple(LogicalCpu(id, 0, id, None) for id in sorted(system.affinity()))
    unknown = Cpu("unknown", "unknown", "unknown", system.machine, (), allowed, ())
    processors = ask("cpu", lambda: cpu.probe(system), unknown)
    one = CpuBudget((processors.logical[0].id,), None, 1, 1, 1, "unknown")
    gpus: tuple[Gpu, ...] = ask("gpu", lambda: gpu.probe(system, nvml), ())
    return Inventory(
        cpu=processors,
        budget=ask("budget", lambda: budget.probe(system, processors), one),
        memory=ask("memory", lambda: memory.probe(system), Memory(0, 0, "unknown", 0)),
        gpus=gpus,
        limits=ask("limits", lambda: budget.resource_limits(system), ResourceLimits(None, "unknown")),
        software=ask(
            "software", lambda: software.probe(system, gpus, quick=quick), Software("unknown", system.platform)
        ),
        notes=tuple(notes),  # after all others
    )
