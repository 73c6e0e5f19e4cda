"""One process that drives every GPU: `torch.nn.DataParallel`, which PyTorch advises against and many still use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.knobs import precision
from autotune.knobs.knob import ROUNDING, Change, Choices, Context, Effect, Flag, Knob, Refused, Training

if TYPE_CHECKING:
    from torch import nn


def _data_parallel(context: Context) -> Choices:
    if not context.cuda:
        return Choices((False,), ((True, "no CUDA device"),))
    if len(context.inventory.gpus) < 2:
        return Choices((False,), ((True, "there is one GPU"),))
    return Choices((False, True))


def replicated(model: nn.Module, training: Training) -> Change:
    """Split each batch over every GPU; the parameters stay on the first.

    Each replica enters autocast itself, since threads do not inherit its type.
    """
    from torch import nn

    from autotune.knobs.model_call import Layered

    class Replica(nn.Module):
        """What `torch.nn.DataParallel` copies to each GPU."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any, **options: Any) -> Any:
            """Return the outputs of one part."""
            own = precision.of(training).layer(self.model, self.model._call_impl)
            return own(*inputs, **options)

    parallel = nn.DataParallel(Replica())
    return Layered(model, lambda _call: parallel)


def _idle(training: Training) -> str | None:
    """Return why there is nothing to split batches over; None if there is."""
    import torch

    if training.device.type != "cuda":
        return "no CUDA device"
    count = torch.cuda.device_count()
    return None if count > 1 else f"PyTorch sees {count} GPU"


def _start(value: bool, training: Training) -> Change | None:
    reason = _idle(training) if value else None
    return Refused(reason) if reason else None


def _on_model(value: bool, model: nn.Module, training: Training) -> Change | None:
    from torch import nn

    if not value or _idle(training) is not None or isinstance(model, nn.DataParallel):
        return None
    return replicated(model, training)


DATA_PARALLEL = Knob(
    name="data_parallel",
    what="one process drives all GPUs (torch.nn.DataParallel)",
    offered="off, on, with several GPUs; the report says what it costs",
    kind=Flag(),
    neutral=False,
    applied="model",
    choices=_data_parallel,
    applies=lambda settings: settings.processes == 1,
    devices=("cuda",),
    fitted=lambda value, inventory: value and len(inventory.gpus) > 1,
    why={True: "one process keeps every GPU at work", False: "no copying of the model at each step"},
    effect=Effect(0.40),
    changes_memory=("host", "device", "shm"),
    keeps=ROUNDING,
    start=_start,
    on_model=_on_model,
)
