"""Classify photographs from a folder of JPEG files with a small ResNet: the input pipeline and the model both matter.

The folder is made once, from crops of the photographs that scikit-image carries; nothing is downloaded. The class of a
crop is the photograph it was cut from. Every sample is decoded and augmented anew, about 1 ms of one core each.

    autotune tune examples/jpeg_folder.py         # as a task: find the settings for this machine
    python examples/jpeg_folder.py --epochs 2     # as a training script: apply them
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from importlib.resources import as_file, files
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import platformdirs
import torch
from PIL import Image, ImageEnhance
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CURRENT = {"batch_size": 64, "num_workers": 0}

PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg")
PHOTOGRAPHS += ("ihc.png", "motorcycle_left.png", "retina.jpg", "rocket.jpg")
IMAGE_SIZE = 128
WIDTHS = (32, 64, 128)


def write_crops(folder: Path, crops: int) -> None:
    """Cut `crops` random squares of 200-300 pixels out of every photograph, as `folder/<photograph>/<number>.jpg`."""
    rng = np.random.default_rng(seed=0)
    for name in PHOTOGRAPHS:
        with as_file(files("skimage") / "data" / name) as source:
            photograph = Image.open(source).convert("RGB")
        target = folder / Path(name).stem
        target.mkdir(parents=True)
        for number in range(crops):
            side = int(rng.integers(200, 301))
            left, top = (int(rng.integers(length - side + 1)) for length in photograph.size)
            photograph.crop((left, top, left + side, top + side)).save(target / f"{number:04d}.jpg", quality=90)


def cache_root() -> Path:
    """The user's cache folder, or the temporary folder where that cannot be written."""
    root = platformdirs.user_cache_path("torch-autotune")
    with contextlib.suppress(OSError):
        root.mkdir(parents=True, exist_ok=True)
    return root if os.access(root, os.W_OK) else Path(tempfile.gettempdir())


def jpeg_folder(root: Path, crops: int = 300) -> Path:
    """The folder of JPEG files in `root`, made on first use; processes that start together all find it whole."""
    folder = root / f"jpeg_folder-{crops}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=root) as scratch:
            made = Path(scratch) / folder.name
            write_crops(made, crops)
            try:
                made.rename(folder)
            except OSError:  # another process was first
                if not folder.is_dir():
                    raise
    return folder


class JpegFolder(Dataset[tuple[Tensor, int]]):
    """`root/<class>/<image>.jpg`, decoded and augmented per sample: float `[3, IMAGE_SIZE, IMAGE_SIZE]` and a label."""

    def __init__(self, root: Path) -> None:
        paths = sorted(root.glob("*/*.jpg"))
        classes = sorted({path.parent.name for path in paths})
        self.paths = np.array([str(path) for path in paths])
        self.labels = np.array([classes.index(path.parent.name) for path in paths])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = augment(Image.open(self.paths[index]).convert("RGB"))
        pixels = (np.asarray(image, dtype=np.float32) / 255 - 0.5) / 0.25
        return torch.from_numpy(pixels.transpose(2, 0, 1)), int(self.labels[index])


def augment(image: Image.Image) -> Image.Image:
    """A random resized square crop, a random flip and colour jitter; torch's generator decides, so its seed counts."""
    area, left, top, flip, *jitter = torch.rand(7).tolist()
    side = min(image.size) * (0.4 + 0.6 * area) ** 0.5
    left, top = left * (image.width - side), top * (image.height - side)
    box = (left, top, left + side, top + side)
    image = image.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BILINEAR, box)
    if flip < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    jitters = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for enhance, strength in zip(jitters, jitter, strict=True):
        image = enhance(image).enhance(0.6 + 0.8 * strength)
    return image


class Block(nn.Module):
    """Two 3x3 convolutions around a skip connection, all with batch normalisation."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        first = convolution(channels_in, channels, 3, stride)
        second = convolution(channels, channels, 3, 1)
        self.body = nn.Sequential(first, nn.ReLU(), second)
        self.skip = convolution(channels_in, channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def convolution(channels_in: int, channels: int, kernel: int, stride: int) -> nn.Sequential:
    same = nn.Conv2d(channels_in, channels, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(same, nn.BatchNorm2d(channels))


def build_model() -> nn.Module:
    stem = nn.Sequential(convolution(3, WIDTHS[0], 3, stride=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
    blocks = [Block(WIDTHS[0], WIDTHS[0], 1), *(Block(narrow, wide, 2) for narrow, wide in pairwise(WIDTHS))]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], len(PHOTOGRAPHS)))
    return nn.Sequential(stem, *blocks, head)


def build_dataset() -> JpegFolder:
    return JpegFolder(jpeg_folder(cache_root()))


def compute_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)


def main() -> None:
    """Train with the best profile for this machine; where there is none, as `CURRENT` says."""
    import autotune

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="stop after this many batches")
    parser.add_argument("--profile", help="default: the best one for this machine")
    parser.add_argument("--level", help="safe, amp or max; default: what the profile recommends")
    parser.add_argument("--save", help="file for the weights; only the main process writes it")
    args = parser.parse_args()

    torch.manual_seed(0)
    tuned = autotune.load(args.profile, target="jpeg_folder", level=args.level)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(build_dataset(), shuffle=True, drop_last=True, **CURRENT)
    model, optimizer, loader = tuned.prepare(model, optimizer, loader)

    items, started = 0, time.perf_counter()
    for batch in islice((batch for _ in range(args.epochs) for batch in loader), args.steps):
        loss = compute_loss(model, batch)
        tuned.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        items += len(batch[0])
    rate = items * tuned.world_size / (time.perf_counter() - started)

    if tuned.is_main:
        print(f"loss {loss.item():.4f}, {rate:.1f} images/s")
        if args.save:
            torch.save(tuned.unwrap(model).state_dict(), args.save)


if __name__ == "__main__":
    main()
