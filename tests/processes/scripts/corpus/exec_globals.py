"""Settings are globals that `exec` overrides; what a runner leaves in the globals would be printed and saved."""

import sys

import torch
from torch import nn

steps = 200
batch_size = 16
learning_rate = 1e-3
names = [name for name, value in globals().items() if not name.startswith("_") and isinstance(value, (int, float, str))]
for argument in sys.argv[1:]:
    exec(argument)
config = {name: globals()[name] for name in names}
print(f"config {config}", flush=True)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
for step in range(1, steps + 1):
    inputs = torch.randn(batch_size, 20)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step <= 20:
        print(f"step {step} loss {loss.item()!r}", flush=True)
torch.save({"model": model.state_dict(), "config": config}, "checkpoint.pt")
