"""A ResNet on a card, as tutorials write it: uint8 images in memory, cropped and flipped for each sample."""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1000)
arguments = parser.parse_args()
SMALL = os.environ.get("AUTOTUNE_REHEARSAL") == "1"
SIDE, WIDTHS, BATCH, IMAGES = (16, (8, 16), 16, 256) if SMALL else (32, (64, 128, 256, 512), 128, 20_000)

torch.manual_seed(0)
device = torch.device("cuda")


class Images(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, count: int) -> None:
        self.labels = torch.randint(10, (count,))
        self.images = torch.randint(256, (count, 3, SIDE, SIDE), dtype=torch.uint8)
        self.images[:, 0] //= 1 + self.labels[:, None, None]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = nn.functional.pad(self.images[index].float() / 255 - 0.5, (4, 4, 4, 4))
        top, left = torch.randint(9, (2,)).tolist()
        image = image[:, top : top + SIDE, left : left + SIDE]
        return (image.flip(2) if torch.rand(()) < 0.5 else image), self.labels[index]


class Block(nn.Module):
    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        first, second = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False), nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.body = nn.Sequential(first, nn.BatchNorm2d(wide), nn.ReLU(), second, nn.BatchNorm2d(wide))
        self.skip = nn.Conv2d(narrow, wide, 1, stride) if (narrow, stride) != (wide, 1) else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def resnet() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()]
    for narrow, wide in zip((WIDTHS[0], *WIDTHS), WIDTHS, strict=False):
        layers += [Block(narrow, wide, 1 if narrow == wide else 2), Block(wide, wide, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], 10))


loader = DataLoader(Images(IMAGES), batch_size=BATCH, shuffle=True, num_workers=2, drop_last=True)
model = resnet().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
for epoch in range(arguments.epochs):
    begun, total = time.time(), 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f} in {time.time() - begun:.2f} s", flush=True)
