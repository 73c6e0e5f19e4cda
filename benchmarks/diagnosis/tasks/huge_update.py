"""Bound by the optimizer: few samples, and a large table of which AdamW updates every row."""

import torch
from torch import nn

CURRENT = {"batch_size": 8, "num_workers": 0, "threads": 1}


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(200_000, 32)
        self.out = nn.Linear(32, 10)

    def forward(self, indices):
        return self.out(self.rows(indices))


def build_model():
    return Table()


def build_dataset():
    return torch.utils.data.TensorDataset(torch.arange(4096), torch.arange(4096) % 10)


def compute_loss(model, batch):
    indices, targets = batch
    return nn.functional.cross_entropy(model(indices), targets)
