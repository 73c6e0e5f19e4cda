"""cuDNN's own search for its fastest algorithms."""

from __future__ import annotations

from autotune.knobs.exported import CODE, LIGHTNING, TRAINER, TRANSFORMERS, argument, line
from autotune.knobs.knob import ROUNDING, Change, Changed, Choices, Context, Effect, Flag, Knob, Refused, Training

SWITCH = "torch.backends.cudnn.benchmark = True"


def _cudnn_benchmark(context: Context) -> Choices:
    if not context.cuda:
        return Choices((False,), ((True, "no CUDA device"),))
    if not context.task.has_convolutions:
        return Choices((False,), ((True, "the model has no convolutions"),))
    if context.task.sample_variation > 1.5:
        return Choices((False,), ((True, "sample shapes vary: every new shape would be benchmarked again"),))
    return Choices((False, True))


def _start(value: bool, training: Training) -> Change | None:
    """Switch it on; never in deterministic mode, which the user chose."""
    import torch

    if not value:
        return None
    if training.device.type != "cuda":
        return Refused("no CUDA device")
    if torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic:
        return Refused("deterministic algorithms are switched on")
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    return Changed(lambda: setattr(torch.backends.cudnn, "benchmark", before))


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
    keeps=ROUNDING,
    start=_start,
    plain=lambda _plan: SWITCH,
    export={
        TRANSFORMERS: lambda plan: line(CODE, SWITCH) if plan.settings.cudnn_benchmark else (),
        LIGHTNING: argument(TRAINER, "benchmark", lambda settings: settings.cudnn_benchmark or None),
    },
)
