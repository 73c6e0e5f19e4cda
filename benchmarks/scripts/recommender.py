"""A recommender: embeddings of users and items, generated ratings, large batches."""

from __future__ import annotations

import argparse

import torch
from step_times import StepTimes
from torch import nn
from torch.utils.data import DataLoader, Dataset

USERS, ITEMS, WIDTH = 50_000, 20_000, 64


class Ratings(Dataset):
    """Ratings by hidden tastes of eight dimensions."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.users = torch.randint(USERS, (count,), generator=generator)
        self.items = torch.randint(ITEMS, (count,), generator=generator)
        tastes, kinds = torch.randn(USERS, 8, generator=generator), torch.randn(ITEMS, 8, generator=generator)
        self.ratings = torch.tanh((tastes[self.users] * kinds[self.items]).sum(1) / 3)

    def __len__(self) -> int:
        return len(self.ratings)

    def __getitem__(self, item: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.users[item], self.items[item], self.ratings[item]


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, WIDTH), nn.Embedding(ITEMS, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(2 * WIDTH, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.mlp(torch.cat([self.users(users), self.items(items)], dim=1)).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10**9, help="end after so many batches")
    parser.add_argument("--batch-size", type=int, default=1024)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Ratings(200_000), batch_size=arguments.batch_size, shuffle=True, num_workers=1)
    model = Recommender()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clock = StepTimes()
    for epoch in range(arguments.epochs):
        clock.begin()
        for users, items, ratings in loader:
            loss = nn.functional.mse_loss(model(users, items), ratings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step()
            if len(clock.steps) == arguments.steps:
                return clock.print_summary()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    return clock.print_summary()


if __name__ == "__main__":
    main()
