"""The knob of torch.compile: when it competes, which modes, and what they may bring."""

from __future__ import annotations

import math

from autotune.core.knobs.knob import Choices, Context, Effect, Knob, Word
from autotune.core.knobs.model import capability
from autotune.probes.facts import Inventory

COMPILE_PAYBACK_SECONDS = 30 * 60
"""On CPUs, training shorter than this is not worth trying compile for: each compiled trial costs up to a minute."""
COMPILE_BUDGET_SECONDS = 5 * 60
"""On CPUs a few trials and a proof whose processes all compile do not fit into less."""
FIRST_COMPILE_BUDGET_SECONDS = 45.0
"""On GPUs the model is compiled once, to see how long that takes, in runs that are no shorter."""
COMPILES_IN_A_RUN = 6
"""What search and proof compile, in units of the first time: other modes and precisions anew, the rest from the cache.
A run with room for half of that still finds and proves a mode."""
COMPILED_FOLDER = "compiled"
"""In the user's cache folder: what trials have compiled, so that the first step of the training compiles nothing."""
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
TRITON_CAPABILITY = (7, 0)
"""Least CUDA compute capability that Triton compiles for."""
COMPILE_GAIN = {
    "cpu": {"off": 0.0, "default": 0.08, "reduce-overhead": 0.08, "max-autotune": 0.08},
    "cuda": {"off": 0.0, "default": 0.25, "reduce-overhead": 0.45, "max-autotune": 0.50},
}
"""On GPUs CUDA graphs bring most where kernels are short; timing kernels adds little, and takes minutes."""
COMPILE_MODES = tuple(COMPILE_GAIN["cpu"])
FIRST_MODES = {"cpu": ("default",), "cuda": ("reduce-overhead", "default", "max-autotune")}
"""Modes by device, in the order of what they usually bring for the time that they take."""


def _compile(context: Context) -> Choices:
    modes = FIRST_MODES[context.task.device]
    reason = _why_not_compiled(context)
    if reason is None:
        return Choices(("off", *modes))
    return Choices(("off",), tuple((mode, reason) for mode in modes))


def _why_not_compiled(context: Context) -> str | None:
    software, task = context.inventory.software, context.task
    if software.compiler is None:
        return software.compiler_reason or "no C++ compiler found"
    if task.batch_shapes > 1:
        return f"shapes change from batch to batch ({task.batch_shapes} in a few): each would be compiled again"
    reason = _why_not_compiled_on_gpus(context) if context.cuda else _why_not_compiled_on_cpus(context)
    return reason or _why_not_again(context)


def _why_not_again(context: Context) -> str | None:
    """Why the first compile was the last."""
    took = context.compile_seconds
    if took == math.inf:
        return "the first compile did not come to its end in its share of the run: --budget 10m gives it more"
    if took is not None and COMPILES_IN_A_RUN / 2 * took > context.budget_seconds:
        return (
            f"the first compile took {took:.0f} s, and search and proof with it do not fit into"
            f" {context.budget_seconds:.0f} s: --budget 10m lets it compete"
        )
    return None


def _why_not_compiled_on_cpus(context: Context) -> str | None:
    if context.train_seconds is None:
        return "compiling takes up to a minute per trial; --train-time 10h lets it compete"
    if context.train_seconds < COMPILE_PAYBACK_SECONDS:
        return "cannot pay back within --train-time"
    if context.budget_seconds < COMPILE_BUDGET_SECONDS:
        return f"a proof with it does not fit into {context.budget_seconds:g} s: --budget 10m lets it compete"
    return None


def _why_not_compiled_on_gpus(context: Context) -> str | None:
    own = capability(context.inventory)
    if own < TRITON_CAPABILITY:
        least = f"{TRITON_CAPABILITY[0]}.{TRITON_CAPABILITY[1]}"
        return f"Triton needs capability {least}, the GPU has {own[0]}.{own[1]}"
    if context.budget_seconds < FIRST_COMPILE_BUDGET_SECONDS:
        return f"the first compile may not fit into {context.budget_seconds:g} s: --budget 3m lets it compete"
    return None


def _compile_fitted(mode: str, inventory: Inventory) -> str:
    if mode == "off" or (inventory.software.compiler is None and inventory.software.compiler_reason):
        return "off"
    return mode if inventory.gpus else "default"


COMPILE = Knob(
    name="compile",
    what="torch.compile mode",
    offered=(
        "off; on GPUs its modes, as far as the first compile leaves time for them; on CPUs `default`, with "
        "`--train-time` of half an hour or more and a budget of five minutes or more; where batches keep their shape, "
        "with a C++ compiler"
    ),
    kind=Word(COMPILE_MODES),
    neutral="off",
    applied="model",
    choices=_compile,
    fitted=_compile_fitted,
    why={
        "default": "fused kernels after a slower start",
        "reduce-overhead": "fused kernels, launched together",
        "max-autotune": "fused, timed kernels; slow start",
        "off": "compiling did not pay back",
    },
    effect=Effect(0.15),
    gain=lambda settings, context: COMPILE_GAIN[context.task.device][settings.compile],
    acts_on=("compute", "overhead"),
    changes_memory=("host", "device", "shm"),
    changes_numbers=True,
    start_seconds=dict.fromkeys(COMPILE_MODES[1:], 5.0),
    first_seconds={"default": 15.0, "reduce-overhead": 15.0, "max-autotune": 60.0},
    applier="compile:Compile",
)
