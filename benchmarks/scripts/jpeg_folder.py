"""A folder of JPEG files with transforms in Pillow; the files are drawn once, if they are missing."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from step_times import StepTimes
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ("circle", "square", "triangle", "cross")


def draw_folder(folder: Path, count: int) -> None:
    """Draw ``count`` pictures of shapes on noise into ``folder``."""
    random.seed(0)
    noise = np.random.default_rng(0)
    for number in range(count):
        shape = CLASSES[number % len(CLASSES)]
        image = Image.fromarray(noise.integers(0, 120, (240, 320, 3), dtype=np.uint8))
        pen = ImageDraw.Draw(image)
        x, y, size = random.randint(60, 260), random.randint(60, 180), random.randint(25, 55)
        colour = tuple(random.randint(130, 255) for _ in range(3))
        if shape == "circle":
            pen.ellipse((x - size, y - size, x + size, y + size), fill=colour)
        elif shape == "square":
            pen.rectangle((x - size, y - size, x + size, y + size), fill=colour)
        elif shape == "triangle":
            pen.polygon(((x, y - size), (x - size, y + size), (x + size, y + size)), fill=colour)
        else:
            pen.line((x - size, y, x + size, y), fill=colour, width=15)
            pen.line((x, y - size, x, y + size), fill=colour, width=15)
        place = folder / shape
        place.mkdir(parents=True, exist_ok=True)
        image.save(place / f"{number:05}.jpg", quality=90)


class JpegFolder(Dataset):
    def __init__(self, folder: Path, size: int = 64) -> None:
        self.files, self.size = sorted(folder.glob("*/*.jpg")), size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, item: int) -> tuple[torch.Tensor, int]:
        image = Image.open(self.files[item]).convert("RGB")
        left, top = random.randint(0, 40), random.randint(0, 30)
        image = image.crop((left, top, left + 280, top + 210)).resize((self.size, self.size), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return (pixels - 0.45) / 0.23, CLASSES.index(self.files[item].parent.name)


def network() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(CLASSES)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--data", type=Path, default=Path("jpeg-data"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if not arguments.data.exists():
        draw_folder(arguments.data, 1200)
    random.seed(0)
    loader = DataLoader(JpegFolder(arguments.data), batch_size=32, shuffle=True, num_workers=2)
    model, clock = network(), StepTimes()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(arguments.epochs):
        clock.begin()
        for images, classes in loader:
            loss = nn.functional.cross_entropy(model(images), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    clock.print_summary()


if __name__ == "__main__":
    main()
