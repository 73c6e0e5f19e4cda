"""The precision of products of float32 matrices on CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.knobs.change import Change, Changed, Refused, Training
from autotune.knobs.choices import Choices, unless
from autotune.knobs.knob import TRACKING, Context, Effect, Knob, Word
from autotune.knobs.precision import PRECISION_GAIN, native_bf16

if TYPE_CHECKING:
    from torch import nn

USUAL = "highest"


def _matmul_precision(context: Context) -> Choices:
    reason = None if native_bf16(context.inventory) else "this CPU has no bfloat16 instructions"
    return unless("precision=tf32 does this on GPUs" if context.cuda else reason, "highest", "medium")


def _on_model(value: str, _model: nn.Module, training: Training) -> Change | None:
    """Set it once, when training begins: what a script computes before that stays exact.

    oneDNN multiplies in bfloat16, and sums in float32. Who has chosen a precision himself keeps it.
    """
    import torch

    if "matmul_precision" in training.started:
        return None
    if training.device.type != "cpu":
        return Refused("it is for CPUs")
    try:
        own = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by PyTorch's new switches, one by one
        return Refused("you have set the precision of matrix products yourself")
    if own != USUAL:
        return Refused(f"you have set it to {own}")
    torch.set_float32_matmul_precision(value)
    training.started["matmul_precision"] = Changed(lambda: torch.set_float32_matmul_precision(USUAL))
    return training.started["matmul_precision"]


MATMUL_PRECISION = Knob(
    name="matmul_precision",
    what="torch.set_float32_matmul_precision on CPUs",
    offered="highest; medium (products of fp32 numbers in bfloat16) on CPUs that have it",
    level="amp",
    kind=Word(("highest", "medium")),
    neutral="highest",
    choices=_matmul_precision,
    devices=("cpu",),
    applies=lambda settings: settings.precision == "fp32",
    fitted=lambda value, inventory: value if native_bf16(inventory) else "highest",
    why={"medium": "faster products; losses track fp32", "highest": "bfloat16 products are not faster here"},
    loss_tolerance={"medium": 0.05},
    effect=Effect(0.20),
    gain=lambda settings, context: (
        PRECISION_GAIN[context.task.device]["bf16"] if settings.matmul_precision == "medium" else 0.0
    ),
    keeps=TRACKING,
    on_model=_on_model,
    plain=lambda plan: f'torch.set_float32_matmul_precision("{plan.settings.matmul_precision}")',
)
