"""The script sets its own threads: by variables before the import, and by PyTorch's calls, which work only once."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.set_num_interop_threads(1)


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    torch.manual_seed(0)
    inputs = torch.randn(256, 100)
    targets = inputs.sum(dim=1, keepdim=True)
    model = nn.Sequential(nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step <= 20:
            print(f"step {step} loss {loss.item()!r}", flush=True)


if __name__ == "__main__":
    main()
