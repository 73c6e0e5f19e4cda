"""Hogwild: processes of `torch.multiprocessing` train one model in shared memory; the script waits for them."""

import argparse

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(rank: int, model: nn.Module, steps: int) -> None:
    torch.manual_seed(rank)
    inputs = torch.randn(1024, 20)
    loader = DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=16, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    step = 0
    while step < steps:
        for batch, targets in loader:
            loss = nn.functional.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            if step == steps:
                break


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    model.share_memory()
    processes = [mp.Process(target=train, args=(rank, model, steps)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
