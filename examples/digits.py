"""Classify handwritten digits with a small convolutional network: the data is in memory, so only the model matters.

autotune tune examples/digits.py         # as a task: find the settings for this machine
python examples/digits.py --epochs 5     # as a training script: apply them
"""

from __future__ import annotations

import argparse
import time
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

CURRENT = {"batch_size": 64, "num_workers": 0}


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def build_dataset() -> TensorDataset:
    """1797 images `[1, 8, 8]` with values from 0 to 1, and their digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(digits.target.astype(np.int64)))


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
    tuned = autotune.load(args.profile, target="digits", level=args.level)
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
