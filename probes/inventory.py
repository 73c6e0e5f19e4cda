"""The list of the probes: `probe` asks them all, `to_json` shows the facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from autotune.probes import budget, cpu, gpu, memory, software, switches
from autotune.probes.facts import Cpu, CpuBudget, Gpu, Inventory, LogicalCpu, Memory, ResourceLimits, Software
from autotune.probes.system import System

T = TypeVar("T")


def probe(system: System | None = None, nvml: Any = None) -> Inventory:
    """Find everything about this machine, or a recorded one; ``nvml`` stands in for pynvml.

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

    processors = ask("cpu", lambda: cpu.probe(system), _unknown_cpu(system))
    gpus: tuple[Gpu, ...] = ask("gpu", lambda: gpu.probe(system, nvml), ())
    found = Inventory(
        cpu=processors,
        budget=ask("budget", lambda: budget.probe(system, processors), _smallest_budget(processors)),
        memory=ask("memory", lambda: memory.probe(system), _unknown_memory()),
        gpus=gpus,
        limits=ask("limits", lambda: budget.resource_limits(system), ResourceLimits(None, "unknown")),
        software=ask("software", lambda: software.probe(system, gpus), _unknown_software(system)),
    )
    notes += ask("power", lambda: switches.power(system), ())
    return dataclasses.replace(found, notes=tuple(notes))


def to_json(inventory: Inventory) -> dict[str, Any]:
    """Turn an inventory into plain data for ``json.dumps``; uuids of GPUs are left out."""
    data = dataclasses.asdict(inventory)
    for each in data["gpus"]:
        del each["uuid"]
    return data


def _unknown_cpu(system: System) -> Cpu:
    ids = sorted(system.affinity() or range(system.cpu_count()))
    logical = tuple(LogicalCpu(id, 0, id, None) for id in ids)
    return Cpu("unknown", "unknown", "unknown", system.machine, (), logical, ())


def _smallest_budget(processors: Cpu) -> CpuBudget:
    return CpuBudget(tuple(c.id for c in processors.logical[:1]) or (0,), None, 1, 1, 1, "unknown")


def _unknown_memory() -> Memory:
    return Memory(0, 0, "unknown", 0, None, None, None)


def _unknown_software(system: System) -> Software:
    return Software("unknown", system.platform, None, None, None, None, None, None, "unknown")
