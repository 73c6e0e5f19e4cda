"""A plain loop behind a main guard, with a validation loader after each epoch."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    return parser.parse_args()


def make_dataset(samples: int) -> TensorDataset:
    inputs = torch.randn(samples, 20)
    return TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())


def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    with torch.no_grad():
        correct = sum(float((model(inputs).argmax(dim=1) == targets).float().sum()) for inputs, targets in loader)
    model.train()
    return correct / len(loader.dataset)


def main() -> None:
    arguments = parse_arguments()
    torch.manual_seed(0)
    training = DataLoader(make_dataset(1024), batch_size=arguments.batch_size, shuffle=True)
    validation = DataLoader(make_dataset(128), batch_size=64)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
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
        print(f"accuracy {evaluate(model, validation):.3f}", flush=True)


if __name__ == "__main__":
    main()
