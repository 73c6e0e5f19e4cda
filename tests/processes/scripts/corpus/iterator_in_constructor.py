"""The loader's iterator is made in a constructor, before the model exists."""

import argparse
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Batches:
    def __init__(self) -> None:
        inputs = torch.randn(1024, 20)
        dataset = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
        self.loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=1)
        self.iterator = iter(self.loader)

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        while True:
            try:
                yield next(self.iterator)
            except StopIteration:
                self.iterator = iter(self.loader)


class Trainer:
    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self.model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def train(self, steps: int) -> None:
        for step, (inputs, targets) in enumerate(self.batches, 1):
            loss = nn.functional.cross_entropy(self.model(inputs), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            if step == steps:
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    torch.manual_seed(0)
    Trainer(Batches()).train(parser.parse_args().steps)
