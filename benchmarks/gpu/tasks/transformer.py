"""A causal transformer over random tokens in memory: matrix products and many short kernels."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

SMALL = os.environ.get("AUTOTUNE_REHEARSAL") == "1"
CURRENT = {"batch_size": 4 if SMALL else 16, "num_workers": 0}
CONTEXT, TOKENS, WIDTH, LAYERS, WINDOWS = (16, 32, 16, 1, 128) if SMALL else (256, 8192, 512, 6, 4096)


class Transformer(nn.Module):
    """Tokens ``[batch, CONTEXT]`` to logits ``[batch, CONTEXT, TOKENS]``."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(TOKENS, WIDTH)
        self.position = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TOKENS)
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position
        return self.head(self.layers(x, mask=self.mask, is_causal=True))


def criterion(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_model() -> nn.Module:
    return Transformer()


def build_dataset() -> Dataset[tuple[Tensor, ...]]:
    tokens = torch.randint(TOKENS, (WINDOWS, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    return TensorDataset(tokens[:, :-1], tokens[:, 1:])


def compute_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    tokens, targets = batch
    return criterion(model(tokens), targets)
