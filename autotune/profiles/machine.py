"""`MachineType`: the shareable part of an `Inventory`, with a readable key."""

import math
import re
from dataclasses import dataclass
from typing import Annotated

from autotune.probes.facts import CpuBudget, Gpu, Inventory
from autotune.profiles.records import OMITTED, At, Rate, pattern, span

MEMORY_GIB: tuple[float, ...] = (1, 1.5, *(step << k for k in range(24) for step in (2, 3)))
"""Classes of memory: 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""

Slug = Annotated[str, pattern(r"[a-z0-9][a-z0-9.\-]{0,199}", "a plain name (a-z, 0-9, dots, dashes)")]
Fact = Annotated[str, pattern(r"[\x21-\x7e]{1,100}", "one plain word")]
Number = Annotated[int, span(1, 2**20)]


@dataclass(frozen=True)
class MachineType:
    """What makes two machines interchangeable for tuning. Never hosts, users, serials or paths."""

    key: Slug
    vendor: Annotated[Fact, At("facts")]
    family: Annotated[Fact, At("facts")]
    architecture: Annotated[Fact, At("facts")]
    threads: Annotated[Number, At("facts")]
    cores: Annotated[Number, At("facts")]
    sockets: Annotated[Number, At("facts")]
    nodes: Annotated[Number, At("facts")]
    memory_gib: Annotated[Rate, At("facts")]
    """The nearest of `MEMORY_GIB`."""
    gpus: Annotated[tuple[Slug, ...], At("facts")]
    features: Annotated[tuple[Fact, ...], At("facts")]
    gpu_gib: Annotated[tuple[Annotated[int, span(0, 2**20)], ...], At("facts"), OMITTED] = ()
    """Memory of each GPU in whole GiB."""
    gpu_links: Annotated[tuple[Slug, ...], At("facts"), OMITTED] = ()
    """Kinds of links between the GPUs, sorted."""


def machine_type(inventory: Inventory) -> MachineType:
    """Return the type of the machine (or container) of ``inventory``, by the hardware that may be used."""
    cpu, budget = inventory.cpu, inventory.budget
    allowed = [c for c in cpu.logical if c.id in set(budget.cpus)]
    sockets = len({c.package for c in allowed}) or 1
    nodes = len({c.node for c in allowed if c.node is not None}) or 1
    gib = memory_class(inventory.memory.limit)
    gpus = tuple(gpu_slug(gpu) for gpu in inventory.gpus)
    parts = [cpu.vendor, cpu.family]
    if sockets > 1:
        parts.append(f"{sockets}s")
    parts += [_processors(budget), f"{gib:g}g"]
    for name in dict.fromkeys(gpus):
        count = gpus.count(name)
        parts.append(name if count == 1 else f"{name}x{count}")
    return MachineType(
        key=slug("-".join(part for part in parts if part)),
        vendor=cpu.vendor,
        family=cpu.family,
        architecture=cpu.architecture,
        threads=budget.threads,
        cores=budget.cores,
        sockets=sockets,
        nodes=nodes,
        memory_gib=gib,
        gpus=gpus,
        features=cpu.features,
        gpu_gib=tuple(round(gpu.memory_total / 2**30) for gpu in inventory.gpus),
        gpu_links=tuple(sorted({link.kind for gpu in inventory.gpus for link in gpu.links})),
    )


def versions(inventory: Inventory) -> dict[str, str | None]:
    """Return the versions of the software that figures depend on, as profiles store them."""
    software = inventory.software
    drivers = [gpu.driver for gpu in inventory.gpus if gpu.driver]
    found = {"python": software.python, "torch": software.torch, "cuda": software.cuda}
    return found | ({"driver": drivers[0]} if drivers else {})


def memory_class(size: int) -> float:
    """Return the size of `MEMORY_GIB` that is nearest to ``size`` bytes by ratio.

    Kernel and firmware reserve a few per cent of the installed memory, and the share changes with updates. That must
    not change the machine type.
    """
    return min(MEMORY_GIB, key=lambda gib: abs(math.log(max(1, size) / 2**30 / gib)))


def _processors(budget: CpuBudget) -> str:
    """Return ``8c`` if each thread has a core of its own, else ``4c8t``."""
    return f"{budget.cores}c" if budget.cores == budget.threads else f"{budget.cores}c{budget.threads}t"


def gpu_slug(gpu: Gpu) -> str:
    """Return ``h200`` for ``NVIDIA H200``, ``rtx-4090`` for ``NVIDIA GeForce RTX 4090``. A MIG slice keeps its size."""
    name = re.sub(r"\b(nvidia|geforce|tesla|quadro)\b", "", gpu.name.lower())
    return slug(name) or "gpu"


def slug(text: str) -> str:
    """Return ``text`` in lower-case letters, digits, dots and single dashes."""
    return re.sub(r"-+", "-", re.sub(r"[^a-z0-9.]+", "-", text.lower())).strip("-.")
