"""A ResNet-like network over random images in memory: convolutions rule."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

SMALL = os.environ.get("AUTOTUNE_REHEARSAL") == "1"
CURRENT = {"batch_size": 16 if SMALL else 128, "num_workers": 0}
SIDE, WIDTHS, IMAGES = (16, (8, 16), 256) if SMALL else (32, (64, 128, 256, 512), 8192)

criterion = nn.functional.cross_entropy


class Block(nn.Module):
    """Two convolutions around a skip connection."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(narrow, wide, 3, 2, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            nn.Conv2d(wide, wide, 3, 1, 1, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.skip = nn.Conv2d(narrow, wide, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def build_model() -> nn.Module:
    pairs = zip((3, *WIDTHS), WIDTHS, strict=False)
    blocks = [Block(narrow, wide) for narrow, wide in pairs]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], 10))


def build_dataset() -> Dataset[tuple[Tensor, ...]]:
    images = torch.randn(IMAGES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    return TensorDataset(images, torch.arange(IMAGES) % 10)


def compute_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    images, labels = batch
    return criterion(model(images), labels)
