"""The user's present settings, from ``CURRENT`` and PyTorch's own defaults."""

from __future__ import annotations

from autotune.core.errors import ContractError
from autotune.core.settings import CATEGORIES, KNOB_NAMES, Settings
from autotune.core.task import TaskFacts
from probes.facts import Inventory

DEFAULT_BATCH = 32
"""Global batch where the user states none. PyTorch's own default of 1 is nobody's choice."""


FOR_GPUS = ("data_parallel", "pin_memory", "cudnn_benchmark")
"""Switches that many people set everywhere and that do nothing without a GPU."""


def baseline_settings(task: TaskFacts, inventory: Inventory) -> Settings:
    """What the user runs today.

    ``CURRENT["batch_size"]`` is the global batch, which the user's loader yields; everything unsaid is what PyTorch
    does by itself on this machine.

    Raises:
        ContractError: ``CURRENT`` contradicts itself, names no knob, or a value that no knob takes.
    """
    current = dict(task.current)
    batch = current.pop("batch_size", DEFAULT_BATCH)
    processes = current.get("processes", 1)
    for name, value in (current | {"batch_size": batch}).items():
        if name not in KNOB_NAMES:
            raise ContractError(no_knob(name))
        wanted = _wanted(name, value)
        if wanted:
            raise ContractError(f'CURRENT["{name}"] = {value!r}: must be {wanted}')
    if batch % processes:
        raise ContractError(
            f'CURRENT["batch_size"] = {batch} is the global batch; it cannot be shared equally by'
            f" {processes} process(es)"
        )
    software, budget = inventory.software, inventory.budget
    defaults = {
        "threads": max(1, (software.default_threads or budget.threads) // (processes if processes > 1 else 1)),
        "interop_threads": software.default_interop_threads or budget.cores,
    }
    if task.device != "cuda":
        current = {name: value for name, value in current.items() if name not in FOR_GPUS}
    backend = "nccl" if task.device == "cuda" else "gloo"
    if processes > 1:
        defaults["backend"] = backend  # type: ignore[assignment]
    return Settings(**(defaults | current), batch_size=batch // processes)


def no_knob(name: str) -> str:
    """What to say of a ``name`` in ``CURRENT`` that is no knob."""
    if name == "accumulation":
        own = 'accumulate in your own loop; CURRENT["batch_size"] is the batch that your loader yields'
        return f"CURRENT['accumulation'] is no knob: {own}"
    return f"CURRENT[{name!r}] is no knob; knobs are: {', '.join(KNOB_NAMES)}"


def _wanted(name: str, value: object) -> str:
    """What knob ``name`` takes, where ``value`` is not of it; else empty."""
    if value is None and name in ("backend", "prefetch_factor"):
        return ""
    offered = CATEGORIES.get(name)
    if offered == (False, True):
        return "" if isinstance(value, bool) else "True or False"
    if offered is not None:
        return "" if value in offered else f"one of {', '.join(offered)}"
    least = 0 if name == "num_workers" else 1
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
    return "" if whole else f"a whole number of at least {least}"


def smaller_baselines(baseline: Settings) -> tuple[tuple[Settings, str], ...]:
    """Where the user's own run out of memory: what to fall back to, gentlest first, each with what it gives up."""
    if baseline.num_workers == 0:
        return ()
    return ((baseline.but(num_workers=0), "without loader workers"),)
