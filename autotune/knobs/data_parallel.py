"""One process that drives every GPU: `torch.nn.DataParallel`, which PyTorch advises against and many still use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.knobs import precision_modes
from autotune.knobs.exported import COMMENT, LIGHTNING, START, TRANSFORMERS, Missing, Plan, Said, line
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
            own = precision_modes.of(training).layer(self.model, self.model._call_impl)
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


def _lightning(plan: Plan) -> Said:
    reason = "Lightning has no strategy for it since version 2; devices=N trains in N processes instead"
    return (Missing(reason),) if plan.settings.data_parallel else ()


def _transformers(plan: Plan) -> Said:
    """`Trainer` uses `DataParallel` by itself in one process that sees several GPUs."""
    if plan.settings.data_parallel:
        return line(COMMENT, "DataParallel: Trainer uses it by itself if one process sees several GPUs")
    alone = plan.settings.processes == 1 and plan.gpus > 1
    return line(START, f"CUDA_VISIBLE_DEVICES=0 {plan.command}") if alone else ()


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
    plain=lambda _plan: "model = torch.nn.DataParallel(model)",
    export={LIGHTNING: _lightning, TRANSFORMERS: _transformers},
)
