"""Memory layout: NHWC ("channels last") weights for models with two-dimensional convolutions."""

from __future__ import annotations

import torch
from torch import nn


def has_image_convolutions(model: nn.Module) -> bool:
    """True where a convolution holds a four-dimensional weight."""
    return any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in model.modules())


def apply(model: nn.Module) -> str | None:
    """Convert ``model`` in place. Returns why it was left alone, or None."""
    if not has_image_convolutions(model):
        return "the model has no two-dimensional convolutions"
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return None
