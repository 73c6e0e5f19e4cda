"""Bound by the disk: each sample reads blocks at random places of a file, past the page cache."""

import mmap
import os
import random
import tempfile

import torch
from torch import nn

CURRENT = {"batch_size": 16, "num_workers": 0, "threads": 1}
BLOCK, BLOCKS, READS = 4096, 16384, 32


class Blocks(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("DISK_FOLDER"))
        path = os.path.join(self.folder.name, "blocks")
        with open(path, "wb") as file:
            for _ in range(BLOCKS // 256):
                file.write(os.urandom(256 * BLOCK))
            os.fsync(file.fileno())
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.room = mmap.mmap(-1, BLOCK)  # aligned, as O_DIRECT wants it

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int):
        draw = random.Random(index)
        total = 0
        for _ in range(READS):
            os.preadv(self.descriptor, [self.room], draw.randrange(BLOCKS) * BLOCK)
            total += self.room[0]
        return torch.full((64,), total / READS / 256), index % 10


def build_model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def build_dataset():
    return Blocks()


def compute_loss(model, batch):
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)
