"""Convolutions: their memory layout, and cuDNN's own search for its fastest algorithms.

The layout is NHWC ("channels last") for what a model with two-dimensional convolutions gets. Only the model's inputs
are laid out, and convolutions pass the layout on. Weights, gradients, the optimizer's state and checkpoints keep
their layout: that costs 0 to 7 % of what converted weights would bring on CPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.devices import CUDA
from autotune.knobs.change import Change, Refused, Training
from autotune.knobs.knob import FLAG, ROUNDING, Context, Knob, unless

if TYPE_CHECKING:
    from torch import nn

    from autotune.knobs.model_call import Call

DETERMINISTIC = "deterministic algorithms are switched on"


def has_image_convolutions(model: nn.Module) -> bool:
    """Return True if ``model`` has convolutions over images."""
    from torch import nn

    return any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in model.modules())


def laid_out(value: Any) -> Any:
    """Return ``value`` in channels_last if it is a batch of images; the same object if it is none, or is already."""
    import torch

    if not isinstance(value, torch.Tensor) or value.dim() != 4 or not value.is_floating_point():
        return value
    _samples, channels, height, width = value.shape
    if channels == 1 and value.is_contiguous():  # both layouts at once; convolutions look at the strides
        return value.as_strided(value.shape, (height * width, 1, width, 1))
    return value.contiguous(memory_format=torch.channels_last)


def _on_model(_value: bool, model: nn.Module, _training: Training) -> Change | None:
    import torch
    from torch.nn.parameter import is_lazy

    from autotune.knobs.model_call import Layered, compiled_by_user

    own = [p for p in model.parameters() if not is_lazy(p) and p.dim() == 4 and not p.is_contiguous()]
    if any(weight.is_contiguous(memory_format=torch.channels_last) for weight in own):
        return None  # the user has done so
    if compiled_by_user(model):
        return Refused("the script compiles its model itself")
    if not has_image_convolutions(model):
        return Refused("the model has no two-dimensional convolutions")

    def layer(call: Call) -> Call:
        def call_with_laid_out(*arguments: Any, **options: Any) -> Any:
            if model.training and torch.is_grad_enabled():
                arguments = tuple(map(laid_out, arguments))
                options = {name: laid_out(option) for name, option in options.items()}
            return call(*arguments, **options)

        return call_with_laid_out

    return Layered(model, layer)


CHANNELS_LAST = Knob(
    name="channels_last",
    kind=FLAG,
    neutral=False,
    applied="model",
    choices=lambda context: unless(
        None if context.task.has_convolutions else "the model has no convolutions", False, True
    ),
    why={True: "convolutions skip reordering memory", False: "the default layout is faster here"},
    spread=0.20,
    gain=lambda settings, context: (
        settings.channels_last * (0.10 if context.device.on_host or settings.precision in ("bf16", "fp16") else 0.02)
    ),
    changes_memory=True,
    keeps=ROUNDING,
    on_model=_on_model,
    plain=lambda _plan: "inputs = inputs.to(memory_format=torch.channels_last)",
)


def _why_not_timed(context: Context) -> str | None:
    if not context.task.has_convolutions:
        return "the model has no convolutions"
    varies = context.task.sample_variation > 1.5
    return "sample shapes vary: every new shape would be benchmarked again" if varies else None


def asks_for_determinism() -> bool:
    """Return True if this process wants algorithms that compute the same each time."""
    import torch

    return torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic


def _search_algorithms(_value: bool, _model: nn.Module, training: Training) -> Change | None:
    """Set it once, when training begins: a script has set its own switches by then, and determinism is kept."""
    import torch

    if "cudnn_benchmark" in training.started:
        return None
    if asks_for_determinism():
        return Refused(DETERMINISTIC)
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    training.started["cudnn_benchmark"] = Change(lambda: setattr(torch.backends.cudnn, "benchmark", before))
    return training.started["cudnn_benchmark"]


CUDNN_BENCHMARK = Knob(
    name="cudnn_benchmark",
    kind=FLAG,
    neutral=False,
    choices=lambda context: unless(_why_not_timed(context), False, True),
    devices=(CUDA,),
    why={True: "cuDNN keeps its fastest algorithms", False: "timing algorithms did not pay back"},
    spread=0.08,
    gain=lambda settings, _context: 0.04 * settings.cudnn_benchmark,
    keeps=ROUNDING,
    start=lambda _value, training: None if training.device.type == CUDA.type else Refused("no CUDA device"),
    on_model=_search_algorithms,
    plain=lambda _plan: "torch.backends.cudnn.benchmark = True",
)
