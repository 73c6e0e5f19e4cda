"""Forecast the next day of many electricity meters with an LSTM: a long chain of small operations.

The meters are generated: every one has its own level, daily and weekly rhythm, answer to the common weather and lasting
noise, so the past says much about the next day, and never everything.

    autotune tune examples/lstm_forecast.py         # as a task: find the settings for this machine
    python examples/lstm_forecast.py --steps 200    # as a training script: apply them
"""

from __future__ import annotations

import argparse
import time
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CURRENT = {"batch_size": 32, "num_workers": 0}

METERS = 64
DAYS = 26 * 7
PAST = 4 * 24  # hours that a forecast is made from
AHEAD = 24  # hours that it is made for
FEATURES = 5  # the load, and the time of the day and of the week as points on a circle
HIDDEN = 64


class Forecaster(nn.Module):
    """The past `[batch, PAST, FEATURES]` to the load of the next hours `[batch, AHEAD]`."""

    def __init__(self) -> None:
        super().__init__()
        self.past = nn.LSTM(FEATURES, HIDDEN, batch_first=True)
        self.ahead = nn.Linear(HIDDEN, AHEAD)

    def forward(self, past: Tensor) -> Tensor:
        hours, _ = self.past(past)
        return self.ahead(hours[:, -1])


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Every meter's windows of `PAST` hours with the `AHEAD` hours that follow; a window starts every three hours."""

    STRIDE = 3

    def __init__(self, loads: np.ndarray, clock: np.ndarray) -> None:
        self.loads, self.clock = loads, clock
        self.starts = np.arange(0, loads.shape[1] - PAST - AHEAD + 1, self.STRIDE)

    def __len__(self) -> int:
        return len(self.loads) * len(self.starts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        meter, window = divmod(index, len(self.starts))
        start = self.starts[window]
        now = start + PAST
        past = np.concatenate([self.loads[meter, start:now, None], self.clock[start:now]], axis=1)
        return torch.from_numpy(past), torch.from_numpy(self.loads[meter, now : now + AHEAD])


def smoothed(noise: np.ndarray, keep: float) -> np.ndarray:
    """Noise that lasts: every hour keeps a share of the hour before; its spread stays that of `noise`."""
    lasting = noise.copy()
    for hour in range(1, noise.shape[-1]):
        lasting[..., hour] = keep * lasting[..., hour - 1] + (1 - keep**2) ** 0.5 * noise[..., hour]
    return lasting


def build_model() -> nn.Module:
    return Forecaster()


def build_dataset() -> Windows:
    """Half a year of `METERS` hourly meters, each scaled to mean 0 and spread 1."""
    rng = np.random.default_rng(seed=0)
    hours = np.arange(DAYS * 24)
    day, week = 2 * np.pi * hours / 24, 2 * np.pi * hours / (24 * 7)
    working = (hours // 24 % 7 < 5).astype(float)
    weather = smoothed(rng.normal(size=len(hours)), keep=0.98)

    def each(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, size=(METERS, 1))

    daily = each(0.5, 1.5) * np.sin(day - each(1.5, 3.0)) + each(0.2, 0.8) * np.sin(2 * day - each(0.0, 6.0))
    loads = daily * (1 + each(-0.4, 0.4) * working) + each(-0.8, 0.8) * working + each(-0.5, 0.5) * weather
    loads += 0.4 * smoothed(rng.normal(size=loads.shape), keep=0.8)
    loads = (loads - loads.mean(axis=1, keepdims=True)) / loads.std(axis=1, keepdims=True)
    clock = np.stack([np.sin(day), np.cos(day), np.sin(week), np.cos(week)], axis=1)
    return Windows(loads.astype(np.float32), clock.astype(np.float32))


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=3e-3)


def compute_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    past, ahead = batch
    return nn.functional.mse_loss(model(past), ahead)


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
    tuned = autotune.load(args.profile, target="lstm_forecast", level=args.level)
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
        print(f"loss {loss.item():.4f}, {rate:.1f} windows/s")
        if args.save:
            torch.save(tuned.unwrap(model).state_dict(), args.save)


if __name__ == "__main__":
    main()
