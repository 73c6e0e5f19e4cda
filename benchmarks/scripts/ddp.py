"""DistributedDataParallel over gloo, started by torchrun: a multilayer perceptron on generated numbers."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from step_times import StepTimes
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64, help="of one process")
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(16_000, 128)
    targets = torch.sin(inputs @ torch.randn(128, 4))
    dataset = TensorDataset(inputs, targets)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=arguments.batch_size, sampler=sampler)
    layers = [nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    clock = StepTimes()
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        clock.begin()
        for batch, wanted in loader:
            loss = nn.functional.mse_loss(model(batch), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
    if rank == 0:
        clock.print_summary()
    dist.barrier()  # without it, some runs abort as they end
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
