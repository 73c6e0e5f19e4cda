"""The precision of matrix products and convolutions."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

from autotune.knobs.exported import (
    ACCELERATE,
    ARGUMENTS,
    CODE,
    CONFIG,
    LIGHTNING,
    TRAINER,
    TRANSFORMERS,
    Line,
    Missing,
    Plan,
    Said,
    line,
)
from autotune.knobs.knob import TRACKING, Change, Choices, Chosen, Context, Effect, Knob, Training, Word
from autotune.knobs.precision_modes import PRECISIONS, of
from autotune.probes.facts import Inventory

if TYPE_CHECKING:
    pass

BF16_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16", "apple-amx")
"""CPU instructions without which bfloat16 is emulated, many times slower (pytorch/pytorch#118499)."""
LEAST_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 0)}
"""CUDA compute capability from which a precision is faster than fp32."""
MATRIX_SHARE = 0.5
"""Of a step's time, what matrix products take: the rest gains nothing from a lower precision."""
PRECISION_GAIN = {
    "cpu": {"fp32": 0.0, "tf32": 0.0, "bf16": 0.10, "fp16": -0.5},
    "cuda": {"fp32": 0.0, "tf32": 0.20, "bf16": 0.35, "fp16": 0.33},
}


def _precision(context: Context) -> Choices:
    return _precision_on_gpus(context.inventory) if context.cuda else _precision_on_cpus(context.inventory)


def _precision_on_gpus(inventory: Inventory) -> Choices:
    own = capability(inventory)
    able = tuple(name for name, least in LEAST_CAPABILITY.items() if own >= least)
    left_out = tuple(
        (name, f"needs capability {least[0]}.{least[1]}, the GPU has {own[0]}.{own[1]}")
        for name, least in LEAST_CAPABILITY.items()
        if name not in able
    )
    return Choices(("fp32", *able), left_out)


def _precision_on_cpus(inventory: Inventory) -> Choices:
    others: tuple[tuple[Any, str], ...] = (
        ("fp16", "slow on CPUs, and gradient scaling is for accelerators"),
        ("tf32", "no CUDA device"),
    )
    if native_bf16(inventory):
        return Choices(("fp32", "bf16"), others)
    return Choices(("fp32",), (("bf16", "this CPU has no bfloat16 instructions"), *others))


def capability(inventory: Inventory) -> tuple[int, int]:
    """Return the CUDA compute capability of the least able GPU."""
    return min((gpu.capability for gpu in inventory.gpus), default=(0, 0))


def native_bf16(inventory: Inventory) -> bool:
    """Return whether the CPU computes in bfloat16 itself."""
    return any(feature in BF16_FEATURES for feature in inventory.cpu.features)


def _precision_fitted(precision: str, inventory: Inventory) -> str:
    """Return a slower precision that works: going from bf16 to fp16 would need a scaler nobody measured here."""
    if inventory.gpus:
        able = capability(inventory) >= LEAST_CAPABILITY.get(precision, (0, 0))
    else:
        able = precision == "bf16" and native_bf16(inventory)
    return precision if able else "fp32"


def _precision_gain(settings: Chosen, context: Context) -> float:
    """Return half of the measured gain of matrix products, else a usual value."""
    precision, gflops = settings.precision, context.gflops
    if precision in gflops and gflops.get("fp32", 0.0) > 0:
        return MATRIX_SHARE * log(gflops[precision] / gflops["fp32"])
    return PRECISION_GAIN[context.task.device][precision]


def _start(value: str, training: Training) -> Change:
    return PRECISIONS[value](training.device)


PLAIN = {
    "fp32": "no autocast",
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
    "bf16": 'with torch.autocast("{device}", dtype=torch.bfloat16): around the forward pass',
    "fp16": 'with torch.autocast("{device}", dtype=torch.float16): around the forward pass, and torch.amp.GradScaler',
}
MIXED = {"fp32": "no", "tf32": "no", "bf16": "bf16", "fp16": "fp16"}
"""Accelerate's names."""
TRAINER_PRECISION = {"fp32": "32-true", "tf32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def _accelerate(plan: Plan) -> Said:
    mixed = Line(CONFIG, f"mixed_precision: '{MIXED[plan.settings.precision]}'")
    return (mixed, Missing()) if plan.settings.precision == "tf32" else (mixed,)


def _lightning(plan: Plan) -> Said:
    switch = 'torch.set_float32_matmul_precision("high")'
    before = line(CODE, switch) if plan.settings.precision == "tf32" else ()
    return (*before, Line(TRAINER, f'precision="{TRAINER_PRECISION[plan.settings.precision]}"'))


def _transformers(plan: Plan) -> Said:
    name = plan.settings.precision
    return () if name == "fp32" else line(ARGUMENTS, f"{name}=True")


PRECISION = Knob(
    name="precision",
    what="precision of matrix products and convolutions",
    words="{}",
    offered="fp32, tf32, bf16, fp16, as far as the hardware has them",
    level="amp",
    kind=Word(tuple(PRECISIONS)),
    neutral="fp32",
    applied="model",
    choices=_precision,
    fitted=_precision_fitted,
    why={
        "bf16": "faster products; losses track fp32",
        "fp16": "faster products; losses track fp32",
        "tf32": "tensor cores; losses track fp32",
        "fp32": "lower precision is not faster here",
    },
    loss_tolerance={"tf32": 0.03, "bf16": 0.05, "fp16": 0.05},
    effect=Effect(0.30),
    gain=_precision_gain,
    changes_memory=("host", "device", "shm"),
    keeps=TRACKING,
    start=_start,
    on_model=lambda _value, model, training: of(training).on_model(model),
    on_optimizer=lambda _value, optimizer, training: of(training).on_optimizer(optimizer),
    plain=lambda plan: PLAIN[plan.settings.precision].format(device=plan.device),
    export={ACCELERATE: _accelerate, LIGHTNING: _lightning, TRANSFORMERS: _transformers},
)
