"""The user's present settings, from ``CURRENT`` and PyTorch's own defaults."""

from __future__ import annotations

from autotune.core.errors import ContractError
from autotune.core.settings import Settings
from autotune.core.task import TaskFacts
from probes.facts import Inventory

DEFAULT_BATCH = 32
"""Global batch where the user states none. PyTorch's own default of 1 is nobody's choice."""


def baseline_settings(task: TaskFacts, inventory: Inventory) -> Settings:
    """What the user runs today.

    ``CURRENT["batch_size"]`` is the global batch; everything unsaid is what PyTorch does by itself on this machine.

    Raises:
        ContractError: ``CURRENT`` contradicts itself or names a value that no knob takes.
    """
    current = dict(task.current)
    batch = current.pop("batch_size", DEFAULT_BATCH)
    processes, accumulation = current.get("processes", 1), current.get("accumulation", 1)
    for name, value in (("batch_size", batch), ("processes", processes), ("accumulation", accumulation)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ContractError(f'CURRENT["{name}"] = {value!r}: must be a whole number of at least 1')
    if batch % (processes * accumulation):
        raise ContractError(
            f'CURRENT["batch_size"] = {batch} is the global batch; it cannot be shared equally by'
            f" {processes} process(es) x {accumulation} accumulation step(s)"
        )
    software, budget = inventory.software, inventory.budget
    defaults = {
        "threads": max(1, (software.default_threads or budget.threads) // (processes if processes > 1 else 1)),
        "interop_threads": software.default_interop_threads or budget.cores,
    }
    backend = "nccl" if task.device == "cuda" else "gloo"
    if processes > 1:
        defaults["backend"] = backend  # type: ignore[assignment]
    return Settings(**(defaults | current), batch_size=batch // (processes * accumulation))


def smaller_baselines(baseline: Settings) -> tuple[tuple[Settings, str], ...]:
    """Where the user's own run out of memory: what to fall back to, gentlest first, each with what it gives up."""
    found: list[tuple[Settings, str]] = []
    if baseline.num_workers:
        found.append((baseline.but(num_workers=0), "without loader workers"))
    alone = baseline.but(num_workers=0)
    for parts in (2, 4, 8, 16):
        if alone.batch_size % parts == 0:
            smaller = alone.but(batch_size=alone.batch_size // parts, accumulation=alone.accumulation * parts)
            found.append((smaller, f"without loader workers and in {parts} micro-steps"))
    return tuple(found)
