"""`memory_bandwidth` over tensors that lie in the nearest cache: the same operators, a thousandth of the traffic."""

import torch
from torch import nn

from benchmarks.diagnosis.tasks import memory_bandwidth
from benchmarks.diagnosis.tasks.memory_bandwidth import CURRENT, build_dataset, build_optimizer, compute_loss  # noqa: F401


class Narrow(memory_bandwidth.Wide):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(memory_bandwidth.WIDTH // 1000))


def build_model():
    return Narrow()
