"""Classify the rows of a table with a small MLP: steps of about a millisecond, so every overhead shows.

The rows are honest variations of scikit-learn's breast cancer table: a measured patient, drawn with replacement, plus
a little measurement noise, with the products of all pairs of measurements as further columns.

    autotune tune examples/tabular_mlp.py         # as a task: find the settings for this machine
    python examples/tabular_mlp.py --epochs 2     # as a training script: apply them
"""

from __future__ import annotations

import argparse
import time
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

CURRENT = {"batch_size": 128, "num_workers": 0}

ROWS = 20_000
MEASUREMENTS = 10  # the table's first ten columns: the means over a patient's cells
COLUMNS = MEASUREMENTS + MEASUREMENTS * (MEASUREMENTS + 1) // 2


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(COLUMNS, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 2),
    )


def build_dataset() -> TensorDataset:
    """`ROWS` rows of `COLUMNS` features and a label: 0 malignant, 1 benign."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    measured = table.data[:, :MEASUREMENTS]
    measured = (measured - measured.mean(axis=0)) / measured.std(axis=0)

    rng = np.random.default_rng(seed=0)
    patients = rng.integers(len(measured), size=ROWS)
    rows = measured[patients] + rng.normal(scale=0.1, size=(ROWS, MEASUREMENTS))
    first, second = np.triu_indices(MEASUREMENTS)
    features = np.concatenate([rows, rows[:, first] * rows[:, second]], axis=1).astype(np.float32)
    return TensorDataset(torch.from_numpy(features), torch.from_numpy(table.target[patients].astype(np.int64)))


def compute_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    features, labels = batch
    return nn.functional.cross_entropy(model(features), labels)


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
    tuned = autotune.load(args.profile, target="tabular_mlp", level=args.level)
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
        print(f"loss {loss.item():.4f}, {rate:.1f} rows/s")
        if args.save:
            torch.save(tuned.unwrap(model).state_dict(), args.save)


if __name__ == "__main__":
    main()
