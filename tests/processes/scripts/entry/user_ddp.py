"""A user's own script, written for torchrun: it names gloo and knows nothing of autotune.

user_ddp.py FOLDER HOW
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Lines(Dataset):
    """Points on a line."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index / 24, 1 - index / 12])


def main(folder: Path, how: str) -> None:
    """Two epochs with one loader worker, gradients of two micro-steps each."""
    dist.init_process_group(backend="gloo")
    rank = int(os.environ["RANK"])
    assert (rank, dist.get_world_size()) == (dist.get_rank(), int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(rank)  # DistributedDataParallel must hand out rank 0's parameters
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = Lines()
    sampler = DistributedSampler(data, shuffle=False)
    start = "spawn" if how == "well" else "fork"  # semaphores of spawned workers outlive a rank that is killed
    workers = {"num_workers": 1, "multiprocessing_context": start, "persistent_workers": True}
    loader = DataLoader(data, 3, sampler=sampler, **workers)
    for epoch in range(2):
        for step, batch in enumerate(loader):
            last = step % 2 == 1
            if last:
                model(batch).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            else:
                with model.no_sync():
                    model(batch).square().mean().backward()
            if rank == 1 and epoch == 1:
                fail(how)
    parameters = [p.flatten().tolist() for p in model.module.parameters()]
    (folder / f"{how}{rank}.json").write_text(json.dumps({"backend": dist.get_backend(), "parameters": parameters}))
    print(f"rank {rank} is done")
    dist.destroy_process_group()


def fail(how: str) -> None:
    """As ``how`` says, if it does."""
    if how == "raises":
        raise KeyError("label of sample 3")
    if how == "exits":
        sys.exit(7)
    if how == "is killed":
        os.kill(os.getpid(), 9)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
