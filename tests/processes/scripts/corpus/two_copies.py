"""Reads what torchrun says, for the log and a seed of its own, and makes no process group: each rank trains alone."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    arguments = parser.parse_args()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    print(f"rank {rank} of {world}", flush=True)
    torch.manual_seed(rank)
    inputs = torch.randn(1024, 20)
    dataset = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
    loader = DataLoader(dataset, batch_size=arguments.batch_size, shuffle=True)
    model: nn.Module = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    while step < arguments.steps:
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            if step == arguments.steps:
                break


if __name__ == "__main__":
    main()
