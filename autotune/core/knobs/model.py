"""Knobs of the step itself: how the model and its optimizer compute."""

from __future__ import annotations

from math import log
from typing import Any

from autotune.core.knobs.knob import Choices, Chosen, Context, Effect, Flag, Knob, Word
from autotune.probes.facts import Inventory

BF16_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16", "apple-amx")
"""CPU instructions without which bfloat16 is emulated, many times slower (pytorch/pytorch#118499)."""
LEAST_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 0)}
"""CUDA compute capability from which a precision is faster than fp32."""
MATRIX_SHARE = 0.5
"""Of a step's time, what matrix products take: the rest gains nothing from a lower precision."""
OPTIMIZER_GAIN = {"default": 0.0, "foreach": 0.01, "fused": 0.05}
OPTIMIZER_IMPLS = tuple(OPTIMIZER_GAIN)
PRECISION_GAIN = {
    "cpu": {"fp32": 0.0, "tf32": 0.0, "bf16": 0.10, "fp16": -0.5},
    "cuda": {"fp32": 0.0, "tf32": 0.20, "bf16": 0.35, "fp16": 0.33},
}


def _channels_last(context: Context) -> Choices:
    if context.task.has_convolutions:
        return Choices((False, True))
    return Choices((False,), ((True, "the model has no convolutions"),))


def _layout_gain(settings: Chosen, context: Context) -> float:
    plain = context.cuda and settings.precision in ("fp32", "tf32")
    share = 0.02 if plain else 0.10
    return share if settings.channels_last else 0.0


CHANNELS_LAST = Knob(
    name="channels_last",
    what="NHWC memory layout",
    offered="off, on, where the model has convolutions",
    kind=Flag(),
    neutral=False,
    applied="model",
    choices=_channels_last,
    why={True: "convolutions skip reordering memory", False: "the default layout is faster here"},
    effect=Effect(0.20),
    gain=_layout_gain,
    acts_on=("compute",),
    changes_memory=("host", "device", "shm"),
    applier="layout:ChannelsLast",
)


def _optimizer_impl(context: Context) -> Choices:
    offered = context.task.optimizer_impls
    reason = f"{context.task.optimizer} does not accept it on {context.task.device}"
    return Choices(offered, tuple((impl, reason) for impl in OPTIMIZER_IMPLS if impl not in offered))


OPTIMIZER_IMPL = Knob(
    name="optimizer_impl",
    what="how the optimizer's update is computed",
    words="{} optimizer",
    offered="default, foreach, fused, as far as the class accepts them",
    kind=Word(OPTIMIZER_IMPLS),
    neutral="default",
    applied="optimizer",
    choices=_optimizer_impl,
    why={
        "fused": "one kernel updates all parameters",
        "foreach": "parameters are updated in groups",
        "default": "PyTorch's own choice is fastest here",
    },
    effect=Effect(0.10),
    gain=lambda settings, _context: OPTIMIZER_GAIN[settings.optimizer_impl],
    acts_on=("update",),
    applier="optimizer:OptimizerImpl",
)


def _cudnn_benchmark(context: Context) -> Choices:
    if not context.cuda:
        return Choices((False,), ((True, "no CUDA device"),))
    if not context.task.has_convolutions:
        return Choices((False,), ((True, "the model has no convolutions"),))
    if context.task.sample_variation > 1.5:
        return Choices((False,), ((True, "sample shapes vary: every new shape would be benchmarked again"),))
    return Choices((False, True))


CUDNN_BENCHMARK = Knob(
    name="cudnn_benchmark",
    what="let cuDNN time its algorithms",
    offered="off, on, with a GPU and convolutions",
    kind=Flag(),
    neutral=False,
    choices=_cudnn_benchmark,
    devices=("cuda",),
    why={True: "cuDNN keeps its fastest algorithms", False: "timing algorithms did not pay back"},
    effect=Effect(0.08),
    gain=lambda settings, _context: 0.04 * settings.cudnn_benchmark,
    acts_on=("compute",),
    applier="cudnn:CudnnBenchmark",
)


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
    """CUDA compute capability of the least able GPU."""
    return min((gpu.capability for gpu in inventory.gpus), default=(0, 0))


def native_bf16(inventory: Inventory) -> bool:
    """True where the CPU computes in bfloat16 itself."""
    return any(feature in BF16_FEATURES for feature in inventory.cpu.features)


def _precision_fitted(precision: str, inventory: Inventory) -> str:
    """A slower precision that works: going from bf16 to fp16 would need a scaler nobody measured here."""
    if inventory.gpus:
        able = capability(inventory) >= LEAST_CAPABILITY.get(precision, (0, 0))
    else:
        able = precision == "bf16" and native_bf16(inventory)
    return precision if able else "fp32"


def _precision_gain(settings: Chosen, context: Context) -> float:
    """Half of the measured gain of matrix products, else a usual value."""
    precision, gflops = settings.precision, context.gflops
    if precision in gflops and gflops.get("fp32", 0.0) > 0:
        return MATRIX_SHARE * log(gflops[precision] / gflops["fp32"])
    return PRECISION_GAIN[context.task.device][precision]


PRECISION = Knob(
    name="precision",
    what="precision of matrix products and convolutions",
    words="{}",
    offered="fp32, tf32, bf16, fp16, as far as the hardware has them",
    level="amp",
    kind=Word(("fp32", "tf32", "bf16", "fp16")),
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
    acts_on=("compute",),
    changes_memory=("host", "device", "shm"),
    changes_numbers=True,
    applier="precision:create",
)


def _matmul_precision(context: Context) -> Choices:
    if native_bf16(context.inventory) and not context.cuda:
        return Choices(("highest", "medium"))
    reason = "precision=tf32 does this on GPUs" if context.cuda else "this CPU has no bfloat16 instructions"
    return Choices(("highest",), (("medium", reason),))


def _matmul_gain(settings: Chosen, context: Context) -> float:
    return 0.0 if settings.matmul_precision == "highest" else PRECISION_GAIN[context.task.device]["bf16"]


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
    gain=_matmul_gain,
    acts_on=("compute",),
    changes_numbers=True,
    applier="matmul_precision:MatmulPrecision",
    added_later=True,
)
