"""Convolutions: their memory layout, and cuDNN's own search for its fastest algorithms.

The layout is NHWC ("channels last") inside a `torch.nn.Sequential`: from a convolution to the last layer behind it that
takes either layout. Code of the user's sees none of it: inputs, outputs, weights and gradients lie as in plain PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from autotune.devices import CUDA
from autotune.knobs.change import Change, Refused, Training
from autotune.knobs.knob import FLAG, ROUNDING, Context, Knob, unless

if TYPE_CHECKING:
    from torch import Tensor, nn

    from autotune.knobs.model_call import Call

SEEN_BY = ("forward", "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Attributes of a layer by which other code than its class sees a call."""
DETERMINISTIC = "deterministic algorithms are switched on"


@functools.cache
def _classes() -> tuple[type[nn.Module], ...]:
    """Return layers that compute the same in either layout, and draw no random numbers."""
    from torch import nn

    pools = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
    functions = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Identity)
    return nn.Conv2d, nn.BatchNorm2d, *pools, *functions


def _is_seen(layer: nn.Module) -> bool:
    return any(vars(layer).get(name) for name in SEEN_BY)


def _is_plain(layer: nn.Module) -> bool:
    """Return True if only the class of ``layer`` sees what it is called with, and what it returns."""
    return not _is_seen(layer) and vars(layer).get("_compiled_call_impl") is None


def _takes_any(layer: nn.Module) -> bool:
    """Return True if ``layer`` may be called in either layout."""
    weight: Any = getattr(layer, "weight", None)
    known = type(layer) in _classes() and _is_plain(layer) and not getattr(layer, "return_indices", False)
    return known and (weight is None or weight.is_contiguous())


def _layers(sequence: nn.Sequential) -> Iterator[nn.Module]:
    """Yield the layers of ``sequence`` as often as it calls them, those of plain sequences in it one by one."""
    from torch import nn

    for layer in sequence:
        yield from _layers(layer) if type(layer) is nn.Sequential and _is_plain(layer) else (layer,)


def laid_out(images: Tensor) -> Tensor:
    """Return contiguous ``images`` in NHWC. Gradients that come back are contiguous: flattening them makes them so."""
    samples, channels, height, width = images.shape
    flat = images.view(-1)
    if channels == 1:  # both layouts at once; convolutions look at the strides
        return flat.view(samples, height, width, 1).permute(0, 3, 1, 2)
    return flat.view(images.shape).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def laid_back(images: Tensor) -> Tensor:
    """Return ``images`` contiguous. Gradients that come back are in NHWC, for the same reason."""
    nhwc = images.permute(0, 2, 3, 1)
    return nhwc.reshape(-1).view(nhwc.shape).permute(0, 3, 1, 2).contiguous()


def run(layers: Sequence[nn.Module], value: Any) -> Any:
    """Call ``layers`` one after the other, in NHWC from a convolution on as long as they take it."""
    import torch
    from torch import nn

    takes, nhwc = [*map(_takes_any, layers), False], False
    for number, layer in enumerate(layers):
        if takes[number] and isinstance(layer, nn.Conv2d):
            images = type(value) is torch.Tensor and value.dim() == 4 and value.is_contiguous()
            if not nhwc and images and takes[number + 1]:
                value, nhwc = laid_out(value), True
            if nhwc:
                weight = layer.weight.view(-1).view(layer.weight.shape)  # for its gradient, as in `laid_out`
                value = layer._conv_forward(value, weight, layer.bias)
                continue
        if nhwc and not takes[number]:
            value, nhwc = laid_back(value), False
        value = layer(value)
    return laid_back(value) if nhwc else value


def sequences(model: nn.Module) -> list[nn.Sequential]:
    """Return the outermost `torch.nn.Sequential` in ``model`` with a convolution that `run` calls in NHWC."""
    from torch import nn

    from autotune.knobs.model_call import compiled_by_user

    def runs_in_nhwc(sequence: nn.Sequential) -> bool:
        pairs = pairwise(_layers(sequence))
        return any(type(one) is nn.Conv2d and _takes_any(one) and _takes_any(after) for one, after in pairs)

    every = [each for each in model.modules() if type(each) is nn.Sequential and not compiled_by_user(each)]
    inside = {layer for each in every for layer in each.children()}
    return [each for each in every if each not in inside and runs_in_nhwc(each)]


def _in_nhwc(sequence: nn.Sequential, call: Call) -> Call:
    import torch

    def call_in_nhwc(*arguments: Any, **options: Any) -> Any:
        seen = _is_seen(sequence) or torch.nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
        if seen or options or len(arguments) != 1 or not (sequence.training and torch.is_grad_enabled()):
            return call(*arguments, **options)
        return run(list(_layers(sequence)), arguments[0])

    return call_in_nhwc


def _on_model(_value: bool, model: nn.Module, _training: Training) -> Change | None:
    from autotune.knobs.model_call import Layered, compiled_by_user

    if compiled_by_user(model):
        return Refused("the script compiles its model itself")
    found = sequences(model)
    if not found:
        return Refused("no torch.nn.Sequential runs a convolution before another layer of images")
    undo = ExitStack()
    for sequence in found:
        undo.callback(Layered(sequence, functools.partial(_in_nhwc, sequence)).undo)
    return Change(undo.close)


CHANNELS_LAST = Knob(
    name="channels_last",
    kind=FLAG,
    neutral=False,
    applied="model",
    applies=lambda settings: settings.compile == "off",
    choices=lambda context: unless(
        None if context.task.has_convolutions else "no torch.nn.Sequential of convolutions", False, True
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
