"""cuDNN's own search for its fastest algorithms."""

from __future__ import annotations

from autotune.knobs import exported as to
from autotune.knobs.change import Change, Changed, Refused, Training
from autotune.knobs.knob import ROUNDING, Choices, Context, Effect, Flag, Knob, unless

SWITCH = "torch.backends.cudnn.benchmark = True"


def _cudnn_benchmark(context: Context) -> Choices:
    reason = None
    if not context.cuda:
        reason = "no CUDA device"
    elif not context.task.has_convolutions:
        reason = "the model has no convolutions"
    elif context.task.sample_variation > 1.5:
        reason = "sample shapes vary: every new shape would be benchmarked again"
    return unless(reason, False, True)


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
        to.TRANSFORMERS: lambda plan: (to.Line(to.CODE, SWITCH),) if plan.settings.cudnn_benchmark else (),
        to.LIGHTNING: to.argument(to.TRAINER, "benchmark", lambda settings: settings.cudnn_benchmark or None),
    },
)
