"""The user's present settings, from ``CURRENT`` and PyTorch's own defaults."""

from __future__ import annotations

from autotune.errors import ContractError
from autotune.knobs.settings import BY_NAME, KNOB_NAMES, KNOBS, Settings
from autotune.knobs.task import TaskFacts
from autotune.near import did_you_mean
from autotune.probes.facts import Inventory

DEFAULT_BATCH = 32
"""Global batch where the user states none. PyTorch's own default of 1 is nobody's choice."""


LOADER_FACTS = ("persistent_workers",)
"""What ``CURRENT`` may say of the user's loader that no knob moves."""


def baseline_settings(task: TaskFacts, inventory: Inventory) -> Settings:
    """Return what the user runs today.

    ``CURRENT["batch_size"]`` is the global batch, which the user's loader yields; everything unsaid is what PyTorch
    does by itself on this machine.

    Raises:
        ContractError: ``CURRENT`` contradicts itself, names no knob, or a value that no knob takes.
    """
    current = {name: value for name, value in task.current.items() if name not in LOADER_FACTS}
    batch = current.pop("batch_size", DEFAULT_BATCH)
    processes = current.get("processes", 1)
    for name, value in (current | {"batch_size": batch}).items():
        if name not in KNOB_NAMES:
            raise ContractError(no_knob(name))
        wanted = BY_NAME[name].why_not(value)
        if wanted is not None:
            raise ContractError(f'CURRENT["{name}"] = {value!r}: must be {wanted}')
    if batch % processes:
        raise ContractError(
            f'CURRENT["batch_size"] = {batch} is the global batch; it cannot be shared equally by'
            f" {processes} process(es)"
        )
    defaults = {knob.name: knob.unsaid(inventory) for knob in KNOBS if knob.unsaid is not None}
    defaults["threads"] = max(1, defaults["threads"] // processes)
    current = {name: value for name, value in current.items() if task.device in BY_NAME[name].devices}
    if processes > 1:
        defaults["backend"] = "nccl" if task.device == "cuda" else "gloo"
    return Settings(**(defaults | current), batch_size=batch // processes)


def no_knob(name: str) -> str:
    """Return what to say of a ``name`` in ``CURRENT`` that is no knob."""
    if name == "accumulation":
        own = 'accumulate in your own loop; CURRENT["batch_size"] is the batch that your loader yields'
        return f"CURRENT['accumulation'] is no knob: {own}"
    return f"CURRENT[{name!r}] is no knob{did_you_mean(name, KNOB_NAMES)}; knobs are: {', '.join(KNOB_NAMES)}"
