"""A variational autoencoder on digits that are shifted at random, with two workers."""

from __future__ import annotations

import argparse
import random

import torch
from sklearn.datasets import load_digits
from step_times import StepTimes
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ShiftedDigits(Dataset):
    def __init__(self, repeats: int) -> None:
        images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
        self.images = nn.functional.interpolate(images, size=28, mode="bilinear")
        self.repeats = repeats

    def __len__(self) -> int:
        return self.repeats * len(self.images)

    def __getitem__(self, item: int) -> torch.Tensor:
        image = self.images[item % len(self.images)]
        return torch.roll(image, (random.randint(-3, 3), random.randint(-3, 3)), dims=(1, 2)).flatten()


class VAE(nn.Module):
    def __init__(self, width: int = 400, latent: int = 20) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(width, latent), nn.Linear(width, latent)
        self.decode = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, 784))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.encode(images)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        drawn = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decode(drawn), mean, log_variance


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(ShiftedDigits(5), batch_size=arguments.batch_size, shuffle=True, num_workers=2)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clock = StepTimes()
    for epoch in range(arguments.epochs):
        total = 0.0
        clock.begin()
        for images in loader:
            optimizer.zero_grad()
            logits, mean, log_variance = model(images)
            rebuilt = nn.functional.binary_cross_entropy_with_logits(logits, images, reduction="sum")
            divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum()
            loss = rebuilt + divergence
            loss.backward()
            optimizer.step()
            total += loss.item()
            clock.step()
        print(f"epoch {epoch}: {total / len(loader.dataset):.2f} nats per image")
    clock.print_summary()


if __name__ == "__main__":
    main()
