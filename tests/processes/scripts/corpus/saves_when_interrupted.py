"""Swallows the interrupt and saves; saves again in `finally` and at exit."""

import argparse
import atexit
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    inputs = torch.randn(1024, 20)
    loader = DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    atexit.register(lambda: Path("exited.txt").write_text("exited\n"))
    step = 0
    try:
        while step < arguments.steps:
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step <= 20:
                    print(f"step {step} loss {loss.item()!r}", flush=True)
                if step == arguments.steps:
                    break
    except KeyboardInterrupt:
        torch.save(model.state_dict(), "interrupted.pt")
    finally:
        torch.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    main()
