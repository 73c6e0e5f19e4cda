"""No main guard, and a loader worker: where workers are not forked, the script would start itself again."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(steps: int) -> None:
    inputs = torch.randn(1024, 20)
    dataset = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < steps:
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            if step == steps:
                break


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
torch.manual_seed(0)
train(parser.parse_args().steps)
