"""DistributedDataParallel with the batch shared out by the script: each process takes its part of the global one."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    arguments = parser.parse_args()
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed:
        dist.init_process_group("gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
    torch.manual_seed(0)
    inputs = torch.randn(1024, 20)
    dataset = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
    sampler = DistributedSampler(dataset) if distributed else None
    loader = DataLoader(dataset, batch_size=arguments.batch_size // world, sampler=sampler, shuffle=sampler is None)
    model: nn.Module = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    if distributed:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, epoch = 0, 0
    while step < arguments.steps:
        if sampler is not None:
            sampler.set_epoch(epoch)
        epoch += 1
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            if step == arguments.steps:
                break
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
