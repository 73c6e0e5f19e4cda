"""Small images that are resized and normalised one by one with tensor operations: the input pipeline rules."""

from __future__ import annotations

import cnn
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

SMALL = cnn.SMALL
CURRENT = {"batch_size": 16 if SMALL else 128, "num_workers": 0}
SIDE, IMAGES = (64, 256) if SMALL else (512, 4096)

criterion = nn.functional.cross_entropy
build_model = cnn.build_model
compute_loss = cnn.compute_loss


class Images(Dataset[tuple[Tensor, int]]):
    """Random crops of one large picture, shrunk to what the network takes: some milliseconds of one core each."""

    def __init__(self) -> None:
        self.picture = torch.randint(256, (3, 2 * SIDE, 2 * SIDE), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        left, top = (int(torch.randint(SIDE, ())) for _ in range(2))
        crop = self.picture[:, top : top + SIDE, left : left + SIDE].float()
        image = nn.functional.interpolate(crop[None], (cnn.SIDE, cnn.SIDE), mode="bilinear", antialias=True)[0]
        return (image / 255 - 0.5) / 0.25, index % 10


def build_dataset() -> Images:
    return Images()
