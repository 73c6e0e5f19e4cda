"""A long evaluation comes before the first step: minutes of it, as many seconds as it is told."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_loader(samples: int, shuffle: bool) -> DataLoader:
    inputs = torch.randn(samples, 20)
    return DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=32, shuffle=shuffle)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, seconds: float) -> None:
    model.eval()
    end = time.monotonic() + seconds
    correct, samples = 0, 0
    while not samples or time.monotonic() < end:
        for inputs, targets in loader:
            correct += int((model(inputs).argmax(dim=1) == targets).sum())
            samples += len(inputs)
    print(f"accuracy {correct / samples:.3f}", flush=True)
    model.train()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--evaluate-seconds", type=float, default=120.0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    training, validation = make_loader(1024, shuffle=True), make_loader(128, shuffle=False)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    evaluate(model, validation, arguments.evaluate_seconds)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    step = 0
    while step < arguments.steps:
        for inputs, targets in training:
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
