"""Predict the next character of Python's own standard library with a small transformer: matrix products rule.

autotune tune examples/char_transformer.py          # as a task: find the settings for this machine
python examples/char_transformer.py --steps 200     # as a training script: apply them
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CURRENT = {"batch_size": 16, "num_workers": 0}

CONTEXT = 128
CHARACTERS = 128  # ASCII
WIDTH = 128
LAYERS = 3


class CharTransformer(nn.Module):
    """A causal transformer: characters `[batch, CONTEXT]` to logits `[batch, CONTEXT, CHARACTERS]`."""

    def __init__(self) -> None:
        super().__init__()
        self.character = nn.Embedding(CHARACTERS, WIDTH)
        self.position = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CHARACTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, characters: Tensor) -> Tensor:
        x = self.character(characters) + self.position
        return self.head(self.layers(x, mask=self.mask, is_causal=True))


class Windows(Dataset[Tensor]):
    """Consecutive windows of `CONTEXT + 1` characters: each holds its own targets, one place further on."""

    def __init__(self, text: np.ndarray) -> None:
        self.windows = text[: len(text) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self.windows[index].astype(np.int64))


def build_model() -> nn.Module:
    return CharTransformer()


def build_dataset() -> Windows:
    """The top-level modules of the standard library, in alphabetical order, without what is not ASCII."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = np.frombuffer(b"\n".join(source.read_bytes() for source in sources), dtype=np.uint8)
    return Windows(text[text < CHARACTERS])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1)


def compute_loss(model: nn.Module, batch: Tensor) -> Tensor:
    logits = model(batch[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def count_items(batch: Tensor) -> int:
    """Tokens that the loss is taken over."""
    return batch[:, 1:].numel()


def main() -> None:
    """Train with the best profile for this machine; where there is none, as `CURRENT` says."""
    import autotune

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="stop after this many batches")
    parser.add_argument("--profile", help="default: the best one for this machine")
    parser.add_argument("--level", help="safe, amp or max; default: what the profile recommends")
    parser.add_argument("--save", help="file for the weights; only the main process writes it")
    args = parser.parse_args()

    torch.manual_seed(0)
    tuned = autotune.load(args.profile, target="char_transformer", level=args.level)
    model = build_model()
    optimizer = build_optimizer(model.parameters())
    loader = DataLoader(build_dataset(), shuffle=True, drop_last=True, **CURRENT)
    model, optimizer, loader = tuned.prepare(model, optimizer, loader)

    items, started = 0, time.perf_counter()
    for batch in islice((batch for _ in range(args.epochs) for batch in loader), args.steps):
        loss = compute_loss(model, batch)
        tuned.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        items += count_items(batch)
    rate = items * tuned.world_size / (time.perf_counter() - started)

    if tuned.is_main:
        print(f"loss {loss.item():.4f}, {rate:.1f} tokens/s")
        if args.save:
            torch.save(tuned.unwrap(model).state_dict(), args.save)


if __name__ == "__main__":
    main()
