"""Bound by augmentation in the training process, without loader workers."""

import random

import torch
from torch import nn

CURRENT = {"batch_size": 32, "num_workers": 0, "threads": 1}


class Augmented(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int):
        draw = random.Random(index)
        pixels = [draw.random() * 0.5 for _ in range(2000)]
        return torch.tensor(pixels[:64]), index % 10


def build_model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def build_dataset():
    return Augmented()


def compute_loss(model, batch):
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)
