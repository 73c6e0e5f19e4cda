"""Every argument without `=` is a file of settings to run, so that a stray `--` ends the script."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

steps = 200
batch_size = 16

for argument in sys.argv[1:]:
    if "=" in argument:
        key, value = argument.removeprefix("--").split("=")
        assert key in globals(), f"Unknown config key: {key}"
        globals()[key] = int(value)
    else:
        exec(Path(argument).read_text())

torch.manual_seed(0)
inputs = torch.randn(1024, 20)
loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=batch_size, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
step = 0
while step < steps:
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step <= 20:
            print(f"step {step} loss {loss.item()!r}", flush=True)
        if step == steps:
            break
