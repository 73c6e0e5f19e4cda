"""LSTM cells in float64, stepped through time by hand: autocast must leave them alone."""

import argparse

import torch
from torch import nn


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTMCell(1, 24)
        self.second = nn.LSTMCell(24, 24)
        self.output = nn.Linear(24, 1)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        h1, c1, h2, c2 = (torch.zeros(len(series), 24, dtype=torch.double) for _ in range(4))
        outputs = []
        for value in series.split(1, dim=1):
            h1, c1 = self.first(value, (h1, c1))
            h2, c2 = self.second(h1, (h2, c2))
            outputs.append(self.output(h2))
        return torch.cat(outputs, dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    series = torch.sin(torch.arange(31, dtype=torch.double) + torch.rand(16, 1, dtype=torch.double) * 6)
    model = Sequence().double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, arguments.steps + 1):
        loss = nn.functional.mse_loss(model(series[:, :-1]), series[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step <= 20:
            print(f"step {step} loss {loss.item()!r}", flush=True)


if __name__ == "__main__":
    main()
