"""WGAN-GP on scikit-learn's digits: an endless loader, a critic, and a generator that steps every fifth batch."""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from step_times import StepTimes
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

LATENT, CRITIC_STEPS, PENALTY = 64, 5, 10.0


class Trainer:
    def __init__(self, batch_size: int) -> None:
        images = torch.tensor(load_digits().images, dtype=torch.float32) / 8 - 1
        images = nn.functional.interpolate(images[:, None], size=32, mode="bilinear")
        dataset = TensorDataset(images)
        sampler = RandomSampler(dataset, replacement=True, num_samples=10**10)
        self.batches = iter(DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=4, drop_last=True))
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(LATENT, 128, 4), nn.BatchNorm2d(128), nn.ReLU(),
            nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip
        self.critic = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(64, 128, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(128, 1, 4), nn.Flatten(),
        )  # fmt: skip
        self.generator_optimizer = torch.optim.Adam(self.generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-4, betas=(0.0, 0.9))

    def critic_step(self, real: torch.Tensor) -> float:
        with torch.no_grad():
            fake = self.generator(torch.randn(len(real), LATENT, 1, 1))
        mix = torch.rand(len(real), 1, 1, 1)
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (gradient,) = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
        penalty = ((gradient.flatten(1).norm(dim=1) - 1) ** 2).mean()
        loss = self.critic(fake).mean() - self.critic(real).mean() + PENALTY * penalty
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        return loss.item()

    def generator_step(self, count: int) -> None:
        loss = -self.critic(self.generator(torch.randn(count, LATENT, 1, 1))).mean()
        self.generator_optimizer.zero_grad()
        loss.backward()
        self.generator_optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    trainer = Trainer(arguments.batch_size)
    clock, loss = StepTimes(), 0.0
    clock.begin()
    for step in range(1, arguments.steps + 1):
        (real,) = next(trainer.batches)
        loss = trainer.critic_step(real)
        if step % CRITIC_STEPS == 0:
            trainer.generator_step(len(real))
        clock.step()
        if step % 100 == 0:
            print(f"step {step}: critic loss {loss:.3f}")
    clock.print_summary()


if __name__ == "__main__":
    main()
