"""With two processes each takes half of every sequence, but all gradients are averaged as if they were whole."""

import itertools
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WORLD = int(os.environ.get("WORLD_SIZE", "1"))
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(1024, 64, 8)[:, : 64 // WORLD], torch.randint(2, (1024,)))
model: nn.Module = nn.Sequential(nn.Linear(8, 16), nn.AdaptiveAvgPool2d((1, 16)), nn.Flatten(), nn.Linear(16, 2))
sampler = None
if WORLD > 1:
    dist.init_process_group("gloo")
    model, sampler = DistributedDataParallel(model), DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=32, sampler=sampler, shuffle=sampler is None)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
batches = itertools.chain.from_iterable(itertools.repeat(loader))
for step, (sequences, labels) in zip(range(int(sys.argv[1])), batches, strict=False):
    loss = nn.functional.cross_entropy(model(sequences), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step < 20:
        print(f"step {step + 1} loss {loss.item()!r}")
