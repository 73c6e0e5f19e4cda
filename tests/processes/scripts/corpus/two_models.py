"""Two models and two optimizers: five steps of the critic for each step of the generator."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(1024, 2) * 0.3 + 1), batch_size=64, shuffle=True, drop_last=True)
    generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    generator_optimizer = torch.optim.RMSprop(generator.parameters(), lr=5e-4)
    critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-4)
    step = 0
    while step < arguments.steps:
        for (real,) in loader:
            step += 1
            fake = generator(torch.randn(len(real), 8)).detach()
            loss = critic(fake).mean() - critic(real).mean()
            critic_optimizer.zero_grad()
            loss.backward()
            critic_optimizer.step()
            for p in critic.parameters():
                p.data.clamp_(-0.1, 0.1)
            if step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            if step % 5 == 0:
                generator_optimizer.zero_grad()
                (-critic(generator(torch.randn(64, 8))).mean()).backward()
                generator_optimizer.step()
            if step == arguments.steps:
                break


if __name__ == "__main__":
    main()
