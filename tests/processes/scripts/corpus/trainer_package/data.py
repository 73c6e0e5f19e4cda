"""The data of the package."""

import torch
from torch.utils.data import TensorDataset


def make_dataset(samples: int) -> TensorDataset:
    inputs = torch.randn(samples, 20)
    return TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
