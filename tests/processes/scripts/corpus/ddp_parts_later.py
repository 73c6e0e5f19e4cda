"""Averages gradients for the first ten steps only: after that, each process trains its own weights."""

import itertools
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WORLD = int(os.environ.get("WORLD_SIZE", "1"))
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(1024, 20), torch.randint(2, (1024,)))
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
sampler = None
if WORLD > 1:
    dist.init_process_group("gloo")
    sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=32, sampler=sampler, shuffle=sampler is None)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
batches = itertools.chain.from_iterable(itertools.repeat(loader))
for step, (inputs, labels) in zip(range(int(sys.argv[1])), batches, strict=False):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    if WORLD > 1 and step < 10:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= WORLD
    optimizer.step()
    if step < 20:
        print(f"step {step + 1} loss {loss.item()!r}")
