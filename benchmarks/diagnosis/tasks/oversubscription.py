"""Bound by threads that wait for each other: many more than any machine of these tests has CPUs."""

import torch
from torch import nn

CURRENT = {"batch_size": 64, "num_workers": 0, "threads": 32}


def build_model():
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def build_dataset():
    inputs = torch.rand(4096, 256)
    return torch.utils.data.TensorDataset(inputs, torch.arange(4096) % 10)


def compute_loss(model, batch):
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)
