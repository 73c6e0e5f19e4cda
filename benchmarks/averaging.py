"""Gradients averaged after the backward pass (what the runtime does on CPUs) against `DistributedDataParallel`.

    torchrun --standalone --nproc-per-node=2 benchmarks/averaging.py
    mpiexec -n 2 python -m autotune.runtime.entry mpi benchmarks/averaging.py

The two take turns in the same processes. Printed are the median milliseconds of a step, forward and backward, and the
median of the turns' ratios.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from autotune.runtime.averaging import average
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TURNS = 12
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int], int]] = {
    "0.01 M parameters": (
        lambda: nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 10)),
        (32, 32),
        50,
    ),
    "3 M, 12 layers": (lambda: nn.Sequential(*(nn.Linear(512, 512) for _ in range(12))), (64, 512), 20),
    "17 M, 2 layers": (
        lambda: nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 2048)),
        (16, 2048),
        5,
    ),
}


def ours(model: nn.Module, batch: torch.Tensor) -> None:
    """One step as the runtime takes it."""
    model.zero_grad()
    model(batch).square().mean().backward()
    average(list(model.parameters()))


def pytorchs(model: nn.Module, batch: torch.Tensor) -> None:
    """One step of PyTorch's module."""
    model.zero_grad()
    model(batch).square().mean().backward()


def milliseconds(
    step: Callable[[nn.Module, torch.Tensor], None], model: nn.Module, shape: tuple[int, int], steps: int
) -> float:
    """Of one step, over ``steps``."""
    batch = torch.randn(shape)
    dist.barrier()
    started = time.perf_counter()
    for _ in range(steps):
        step(model, batch)
    return 1e3 * (time.perf_counter() - started) / steps


def main() -> None:
    """Print one line for each model, on rank 0."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for name, (make, shape, steps) in MODELS.items():
        plain, shared = make(), DistributedDataParallel(make())
        turns = [
            (milliseconds(ours, plain, shape, steps), milliseconds(pytorchs, shared, shape, steps))
            for _ in range(TURNS + 1)
        ][1:]
        own, theirs = (statistics.median(column) for column in zip(*turns, strict=True))
        ratio = statistics.median(a / b for a, b in turns)
        if dist.get_rank() == 0:
            print(f"{name}: {own:.2f} ms averaged after, {theirs:.2f} ms DistributedDataParallel, {ratio:.2f} of it")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
