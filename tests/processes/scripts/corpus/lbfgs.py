"""LBFGS over the whole data: one step calls its closure, forward and backward, up to 20 times."""

import argparse

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=15)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    times = torch.linspace(0, 20, 400).unsqueeze(1)
    waves = torch.sin(times) + 0.5 * torch.sin(3 * times)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=20)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(times), waves)
        loss.backward()
        return loss

    for step in range(1, arguments.steps + 1):
        loss = optimizer.step(closure)
        if step <= 20:
            print(f"step {step} loss {loss.item()!r}", flush=True)


if __name__ == "__main__":
    main()
