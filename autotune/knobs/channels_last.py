"""Memory layout: NHWC ("channels last") weights for models with two-dimensional convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.knobs.knob import ROUNDING, Change, Choices, Chosen, Context, Effect, Flag, Knob, Refused, Training
from autotune.knobs.optimizer_impl import own_implementation

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

OWN_USES = 2
"""Of a tensor's memory: by the tensor itself, and by whoever counts. More are tied tensors, views, `state_dict` ..."""
FUSED = "the optimizer's own fused kernel needs the usual layout"


def _channels_last(context: Context) -> Choices:
    if context.task.has_convolutions:
        return Choices((False, True))
    return Choices((False,), ((True, "the model has no convolutions"),))


def _layout_gain(settings: Chosen, context: Context) -> float:
    plain = context.cuda and settings.precision in ("fp32", "tf32")
    share = 0.02 if plain else 0.10
    return share if settings.channels_last else 0.0


def has_image_convolutions(model: nn.Module) -> bool:
    """Return whether a convolution of ``model`` holds a four-dimensional weight."""
    from torch import nn

    return any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in model.modules())


def _why_left_alone(model: nn.Module) -> str | None:
    """Return why the storage of the model's tensors cannot be replaced, or None."""
    import torch
    from torch.nn.parameter import is_lazy

    if not has_image_convolutions(model):
        return "the model has no two-dimensional convolutions"
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}.values()
    if any(map(is_lazy, tensors)):
        return "the model has layers that take their shape from the first batch"
    storages = [tensor.untyped_storage() for tensor in tensors]
    views = any(s.nbytes() != t.numel() * t.element_size() for s, t in zip(storages, tensors, strict=True))
    held = any(torch._C._storage_Use_Count(storage._cdata) > OWN_USES for storage in storages)
    if views or held or any(storage.is_shared() for storage in storages if storage.device.type == "cpu"):
        return "tensors of the model share their memory with others"
    return None


class _Converted(Change):
    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._lay_out(last=True)

    def undo(self) -> None:
        """Lay the weights out as usual."""
        self._lay_out(last=False)

    def _lay_out(self, *, last: bool) -> None:
        """Convert the weights, and gradients with them: they belong to the step that is being made."""
        import torch

        form = torch.channels_last if last else torch.contiguous_format
        self._model.to(memory_format=form)  # type: ignore[call-overload]
        for parameter in self._model.parameters():
            gradient = parameter.grad
            if gradient is not None and gradient.dim() == 4 and gradient.layout is torch.strided:
                parameter.grad = gradient.contiguous(memory_format=form)


def _on_model(value: bool, model: nn.Module, training: Training) -> Change | None:
    import torch
    from torch.nn.parameter import is_lazy

    if not value:
        return None
    own = [p for p in model.parameters() if not is_lazy(p) and p.dim() == 4 and not p.is_contiguous()]
    if any(weight.is_contiguous(memory_format=torch.channels_last) for weight in own):
        return None  # the user has done so
    fused = FUSED if any(own_implementation(optimizer) == "fused" for optimizer in training.optimizers) else None
    reason = fused or _why_left_alone(model)
    return _Converted(model) if reason is None else Refused(reason)


def _on_optimizer(value: bool, optimizer: Optimizer, training: Training) -> Change | None:
    """Undo the conversion if the user's own kernel walks raw memory: state that is loaded later lies as usual."""
    converted = [change for change in training.changes if isinstance(change, _Converted)]
    if not value or not converted or own_implementation(optimizer) != "fused":
        return None
    for change in converted:
        change.undo()
    return Refused(FUSED)


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
    changes_memory=("host", "device", "shm"),
    keeps=ROUNDING,
    on_model=_on_model,
    on_optimizer=_on_optimizer,
    plain=lambda _plan: "model = model.to(memory_format=torch.channels_last)",
)
