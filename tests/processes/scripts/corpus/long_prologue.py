"""A long prologue: the data is prepared for as many seconds as it is told before the training loader is read."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare_data(seconds: float) -> TensorDataset:
    end = time.monotonic() + seconds
    draws = np.random.default_rng(0)
    while time.monotonic() < end:
        np.sort(draws.random(100_000))
    inputs = torch.randn(1024, 20)
    return TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--prologue-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(prepare_data(arguments.prologue_seconds), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < arguments.steps:
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            if step == arguments.steps:
                break


if __name__ == "__main__":
    main()
