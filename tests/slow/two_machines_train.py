"""A training script for several processes: what each rank saw goes to FOLDER/<rank>.json."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import autotune

folder = Path(sys.argv[1])
tuned = autotune.load()
torch.manual_seed(0)
model = nn.Linear(8, 1)
inputs = torch.linspace(-1, 1, 30 * 8).reshape(30, 8)
loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=12)
model, optimizer, loader = tuned.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
for _ in range(2):
    for batch, target in loader:
        tuned.backward(nn.functional.mse_loss(model(batch), target))
        optimizer.step()
        optimizer.zero_grad()
weights = [parameter.flatten().tolist() for parameter in tuned.unwrap(model).parameters()]
seen = {"world": tuned.world_size, "threads": torch.get_num_threads(), "weights": weights}
seen["interface"] = os.environ.get("GLOO_SOCKET_IFNAME")
(folder / f"{tuned.rank}.json").write_text(json.dumps(seen))
