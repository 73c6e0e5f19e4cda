"""Bound by a source that lets its loader workers wait, as a network does."""

import time

import torch
from torch import nn

CURRENT = {"batch_size": 32, "num_workers": 2, "threads": 1}
WAIT_SECONDS = 0.001


class Source(torch.utils.data.Dataset):
    def __init__(self, wait: float) -> None:
        self.wait = wait

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int):
        time.sleep(self.wait)
        return torch.full((64,), index / 4096), index % 10


def build_model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def build_dataset():
    return Source(WAIT_SECONDS)


def compute_loss(model, batch):
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)
