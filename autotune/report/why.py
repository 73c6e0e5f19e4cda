"""Why a knob's new value helps: one short phrase for each direction it can move.

Phrases have at most 40 characters, so that a changed knob takes one line of the final report."""

from __future__ import annotations

from typing import Any

from autotune.core.settings import Settings

MORE, LESS = "more", "less"

WHY: dict[str, dict[Any, str]] = {
    "processes": {
        MORE: "uses cores or GPUs that sat idle",
        LESS: "less gradient exchange",
    },
    "threads": {
        MORE: "kernels are large enough for more cores",
        LESS: "more threads only waited for each other",
    },
    "interop_threads": {
        MORE: "independent operators run side by side",
        LESS: "leaves the cores to the kernels",
    },
    "backend": {
        "gloo": "exchanges gradients between CPUs",
        "nccl": "exchanges gradients between GPUs",
        "mpi": "exchanges gradients over MPI",
        "ccl": "exchanges gradients with oneCCL",
        None: "one process exchanges nothing",
    },
    "data_parallel": {
        True: "one process keeps every GPU at work",
        False: "no copying of the model at each step",
    },
    "binding": {
        "cores": "each process keeps its cores and caches",
        "numa": "memory stays near each process's cores",
        "none": "the scheduler places threads better",
    },
    "num_workers": {
        MORE: "batches are prepared during training",
        LESS: "workers took time from training",
    },
    "prefetch_factor": {
        MORE: "batches in hand smooth over slow ones",
        LESS: "less memory for waiting batches",
        None: "no workers, nothing to prefetch",
    },
    "persistent_workers": {
        True: "no new workers each epoch",
        False: "no workers, none to keep",
    },
    "pin_memory": {
        True: "copies to the GPU overlap computation",
        False: "page-locking cost more than it saved",
    },
    "batch_size": {
        MORE: "larger kernels use the hardware better",
        LESS: "smaller pieces fit caches and memory",
    },
    "channels_last": {
        True: "convolutions skip reordering memory",
        False: "the default layout is faster here",
    },
    "optimizer_impl": {
        "fused": "one kernel updates all parameters",
        "foreach": "parameters are updated in groups",
        "default": "PyTorch's own choice is fastest here",
    },
    "allocator": {
        "jemalloc": "host memory is kept for reuse",
        "tcmalloc": "host memory is kept for reuse",
        "default": "the system's allocator is fastest",
    },
    "cudnn_benchmark": {
        True: "cuDNN keeps its fastest algorithms",
        False: "timing algorithms did not pay back",
    },
    "compile": {
        "default": "fused kernels after a slower start",
        "reduce-overhead": "fused kernels, launched together",
        "max-autotune": "fused, timed kernels; slow start",
        "off": "compiling did not pay back",
    },
    "precision": {
        "bf16": "faster products; losses track fp32",
        "fp16": "faster products; losses track fp32",
        "tf32": "tensor cores; losses track fp32",
        "fp32": "lower precision is not faster here",
    },
}


def why(knob: str, before: Any, after: Any) -> str:
    """The phrase for ``knob`` moving from ``before`` to ``after``."""
    phrases = WHY[knob]
    if after in phrases:
        return phrases[after]
    return phrases[MORE if before is None or after > before else LESS]


def changed(settings: Settings, baseline: Settings) -> list[tuple[str, Any, Any, str]]:
    """``(knob, before, after, why)`` for every knob that differs, in the knob table's order."""
    moved = settings.difference(baseline)
    return [(knob, before, after, _why(knob, before, after, settings)) for knob, (after, before) in moved.items()]


def _why(knob: str, before: Any, after: Any, settings: Settings) -> str:
    if knob == "threads" and settings.processes > 1 and after < before:
        return f"{settings.processes} processes share the cores"
    if knob == "prefetch_factor" and before is None:
        return "PyTorch's default with workers" if after == 2 else WHY[knob][MORE]
    return why(knob, before, after)
