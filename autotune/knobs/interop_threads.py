"""Inter-op threads. PyTorch takes them once per process, before its first parallel work, and never back."""

from __future__ import annotations

from autotune.knobs.exported import statement
from autotune.knobs.knob import LESS, MORE, Change, Choices, Chosen, Count, Effect, Knob, Refused, Training


def _start(value: int, _training: Training) -> Change | None:
    import torch

    found = torch.get_num_interop_threads()
    if found != value:
        try:
            torch.set_num_interop_threads(value)
        except RuntimeError:
            return Refused(f"too late: {found} are in force since the first parallel work; start with autotune run")
    return None


def _set(settings: Chosen) -> str:
    return f"torch.set_num_interop_threads({settings.interop_threads})"


INTEROP_THREADS = Knob(
    name="interop_threads",
    what="inter-op threads of each process",
    offered="1 and yours",
    kind=Count(1, 4096),
    neutral=1,
    choices=lambda context: Choices(tuple(sorted({1, context.baseline.interop_threads}))),
    unsaid=lambda inventory: inventory.software.default_interop_threads or inventory.budget.cores,
    fitted=lambda value, inventory: min(value, max(inventory.budget.threads, len(inventory.cpu.logical))),
    why={MORE: "independent operators run side by side", LESS: "leaves the cores to the kernels"},
    effect=Effect(0.03, 2.0),
    start=_start,
    plain=lambda plan: f"{_set(plan.settings)}, before any parallel work",
    export=statement(_set),
)
