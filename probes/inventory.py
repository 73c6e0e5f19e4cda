"""The list of the probes: `probe` asks them all, `to_json` shows the facts."""

from __future__ import annotations

import dataclasses
from typing import Any

from autotune.probes import budget, cpu, gpu, memory, software, switches
from autotune.probes.facts import Gpu, Inventory
from autotune.probes.system import System


def probe(system: System | None = None, nvml: Any = None) -> Inventory:
    """Find everything about this machine, or a recorded one; ``nvml`` stands in for pynvml.

    A GPU driver that fails leaves a note, and training runs on the CPU.
    """
    system = system or System()
    processors, gpus, notes = cpu.probe(system), tuple[Gpu, ...](), switches.power(system)
    try:
        gpus = gpu.probe(system, nvml)
    except Exception as error:  # NVML's own errors are not known before it is imported
        notes = (f"The GPU driver failed ({type(error).__name__}: {error}): no GPU is used.", *notes)
    return Inventory(
        cpu=processors,
        budget=budget.probe(system, processors),
        memory=memory.probe(system),
        gpus=gpus,
        limits=budget.resource_limits(system),
        software=software.probe(system, gpus),
        notes=notes,
    )


def to_json(inventory: Inventory) -> dict[str, Any]:
    """Turn an inventory into plain data for ``json.dumps``; uuids of GPUs are left out."""
    data = dataclasses.asdict(inventory)
    for each in data["gpus"]:
        del each["uuid"]
    return data
