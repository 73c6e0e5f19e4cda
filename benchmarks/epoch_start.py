"""What loader workers cost at the start of an epoch: started anew, against kept from the epoch before.

    python benchmarks/epoch_start.py [--epochs 15]

The two take turns in one process. Printed are the medians of the time from `iter(loader)` to the first batch.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch.utils.data import DataLoader, TensorDataset


def first_batch(loader: DataLoader[tuple[torch.Tensor, ...]]) -> float:
    """Milliseconds to the first batch; the rest of the epoch is read afterwards."""
    started = time.perf_counter()
    batches = iter(loader)
    next(batches)
    seconds = time.perf_counter() - started
    for _ in batches:
        pass
    return 1e3 * seconds


def main() -> None:
    """Print one line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(3200, 32))
    for workers in (1, 2):
        anew, kept = (
            DataLoader(data, batch_size=64, num_workers=workers, persistent_workers=persistent)
            for persistent in (False, True)
        )
        pairs = [(first_batch(anew), first_batch(kept)) for _ in range(epochs + 1)][1:]
        medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
        print(f"{workers} workers: {medians[0]:.1f} ms started anew, {medians[1]:.1f} ms kept")


if __name__ == "__main__":
    main()
