"""Predict clicks from large embedding tables and a small MLP: the memory is the limit, not the arithmetic.

The clicks are generated: users and items have hidden tastes, a few items are shown far more often than the rest, and a
user's history holds what they preferred to something else. Whether they click depends on how well the tastes fit.

    autotune tune examples/recommender.py         # as a task: find the settings for this machine
    python examples/recommender.py --steps 400    # as a training script: apply them
"""

from __future__ import annotations

import argparse
import time
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

CURRENT = {"batch_size": 256, "num_workers": 0}

CLICKS = 200_000
USERS = 100_000
ITEMS = 100_000
WIDTH = 32
HISTORY = 10
TASTES = 4


class ClickModel(nn.Module):
    """Users `[batch]`, items `[batch]` and histories of items `[batch, HISTORY]` to the logit of a click `[batch]`."""

    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Embedding(USERS, WIDTH)
        self.item = nn.Embedding(ITEMS, WIDTH)
        self.history = nn.EmbeddingBag(ITEMS, WIDTH, mode="mean")
        for table in (self.user, self.item, self.history):
            nn.init.normal_(table.weight, std=0.3)
        self.head = nn.Sequential(nn.Linear(5 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user: Tensor, item: Tensor, history: Tensor) -> Tensor:
        user, item, history = self.user(user), self.item(item), self.history(history)
        return self.head(torch.cat([user, item, history, user * item, history * item], dim=1)).squeeze(1)


def build_model() -> nn.Module:
    return ClickModel()


def build_dataset() -> TensorDataset:
    """`CLICKS` rows of whole numbers (user, item, the user's history) with a label: 1 clicked, 0 not."""
    rng = np.random.default_rng(seed=0)
    user_tastes = rng.normal(size=(USERS, TASTES)).astype(np.float32)
    item_tastes = rng.normal(size=(ITEMS, TASTES)).astype(np.float32)
    appeal = rng.normal(size=ITEMS).astype(np.float32)

    def drawn(count: int, *shape: int) -> np.ndarray:
        """Numbers below `count`, the low ones far more often."""
        return (count * rng.random(shape) ** 6).astype(np.int64)

    user, item = drawn(USERS, CLICKS), drawn(ITEMS, CLICKS)
    one, other = drawn(ITEMS, CLICKS, HISTORY), drawn(ITEMS, CLICKS, HISTORY)
    preferred = np.einsum("ct,cht->ch", user_tastes[user], item_tastes[one] - item_tastes[other]) > 0
    fit = (user_tastes[user] * item_tastes[item]).sum(axis=1) + appeal[item]
    clicked = rng.random(CLICKS) < 1 / (1 + np.exp(1 - 2 * fit))

    columns = np.column_stack([user, item, np.where(preferred, one, other)])
    return TensorDataset(torch.from_numpy(columns), torch.from_numpy(clicked.astype(np.float32)))


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=2.0)


def compute_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    columns, clicked = batch
    logits = model(columns[:, 0], columns[:, 1], columns[:, 2:])
    return nn.functional.binary_cross_entropy_with_logits(logits, clicked)


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
    tuned = autotune.load(args.profile, target="recommender", level=args.level)
    model = build_model()
    optimizer = build_optimizer(model.parameters())
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
