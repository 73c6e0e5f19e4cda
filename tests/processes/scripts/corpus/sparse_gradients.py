"""Sparse gradients with SGD: its fused implementation fails on them."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(1000, 16, sparse=True)
        self.items = nn.Embedding(500, 16, sparse=True)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return (self.users(users) * self.items(items)).sum(dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randint(1000, (4096,)), torch.randint(500, (4096,)), torch.rand(4096))
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    model = Recommender()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    while step < arguments.steps:
        for users, items, ratings in loader:
            loss = nn.functional.mse_loss(model(users, items), ratings)
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
