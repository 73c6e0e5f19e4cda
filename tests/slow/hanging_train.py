"""A training script whose rank 1 hangs in its third step.

HOW "own" starts the group itself and knows nothing of this project; "loaded" loads the profile.
"""

from __future__ import annotations

import signal
import sys

import torch
import torch.distributed as dist
from torch import nn

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if sys.argv[1] == "own":
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
else:
    import autotune

    tuned = autotune.load()
    model, optimizer = tuned.prepare(model, optimizer)


def hang() -> None:
    signal.pause()


for step in range(5):
    if step == 2 and dist.get_rank() == 1:
        hang()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
