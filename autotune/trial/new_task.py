"""A commented task file to start from: what ``autotune init`` writes."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import UsageError

TASK = '''"""Task file for autotune: what to train, so that `autotune tune` can measure it."""

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

# What you run today: the baseline that every gain is measured against. batch_size is the global batch.
CURRENT = dict(batch_size=64, num_workers=0)


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 10))


def build_dataset() -> Dataset:
    """Return your real dataset: loading and augmentation are part of what is tuned."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4096, 32, generator=generator)
    return TensorDataset(inputs, inputs.argmax(dim=1) % 10)


def compute_loss(model, batch):
    """batch: what the DataLoader yields, already on the device."""
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)


# Optional:
#
# def build_optimizer(parameters):
#     return torch.optim.AdamW(parameters, lr=1e-3)
#
# collate_fn = None
#
# def count_items(batch) -> int:  # for example tokens; samples by default
#     return batch[0].numel()
'''


def write_task(path: Path) -> None:
    """Write the file to ``path``; never overwrite one.

    Raises:
        UsageError: it exists, or cannot be written.
    """
    try:
        with path.open("x") as file:
            file.write(TASK)
    except FileExistsError:
        raise UsageError(f"{path} exists already; name another file: autotune init my_model.py") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
