"""Bound by memory: one multiplication per number, over tensors that no cache holds."""

import torch
from torch import nn

CURRENT = {"batch_size": 32, "num_workers": 0, "threads": 1}
WIDTH = 250_000


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH))

    def forward(self, inputs):
        wide = inputs * self.weight
        return ((wide * 2.0 + 1.0) * wide).mean(1)


def build_model():
    return Wide()


def build_dataset():
    return torch.utils.data.TensorDataset(torch.rand(512, 1))


def build_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=1e-6)


def compute_loss(model, batch):
    return model(batch[0]).mean()
