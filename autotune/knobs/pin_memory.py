"""Page-locked host batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.knobs.exported import in_loader
from autotune.knobs.knob import Change, Choices, Chosen, Context, Effect, Flag, Knob, Refused, Training

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def _pin_memory(context: Context) -> Choices:
    if context.cuda:
        return Choices((False, True))
    return Choices((False,), ((True, "pinned memory only serves copies to an accelerator"),))


def _start(value: bool, training: Training) -> Change | None:
    idle = value and training.device.type == "cpu"
    return Refused("no effect: pinned memory only serves copies to an accelerator") if idle else None


def _on_loader(settings: Chosen, _loader: DataLoader[Any], training: Training) -> dict[str, Any]:
    return {} if training.device.type == "cpu" else {"pin_memory": settings.pin_memory}


PIN_MEMORY = Knob(
    name="pin_memory",
    what="page-locked host batches",
    offered="off, on, with a GPU",
    kind=Flag(),
    neutral=False,
    applied="loader",
    choices=_pin_memory,
    devices=("cuda",),
    why={True: "copies to the GPU overlap computation", False: "page-locking cost more than it saved"},
    effect=Effect(0.06),
    gain=lambda settings, _context: 0.03 * settings.pin_memory,
    start=_start,
    on_loader=_on_loader,
    plain=lambda plan: f"DataLoader(..., pin_memory={plan.settings.pin_memory!r})",
    export=in_loader("pin_memory", lambda settings: settings.pin_memory),
)
