"""A GPT of 11 million parameters on a card, as small repositories write it: get_batch, no loader, clipped gradients."""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import Tensor, nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
arguments = parser.parse_args()
SMALL = os.environ.get("AUTOTUNE_REHEARSAL") == "1"
LENGTH, WIDTH, HEADS, LAYERS, BATCH = (32, 48, 2, 2, 8) if SMALL else (256, 384, 6, 6, 64)
WORDS = 65

torch.manual_seed(1337)
device = "cuda"
data = torch.randint(WORDS, (1_000_000,)).cumsum(0) % WORDS


def get_batch() -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(data) - LENGTH, (BATCH,)).tolist()
    inputs = torch.stack([data[start : start + LENGTH] for start in starts])
    targets = torch.stack([data[start + 1 : start + LENGTH + 1] for start in starts])
    return inputs.to(device), targets.to(device)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x = self.words(inputs) + self.places(torch.arange(inputs.shape[1], device=inputs.device))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
begun = time.time()
for step in range(arguments.steps):
    inputs, targets = get_batch()
    loss = model(inputs, targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 100 == 99:
        print(f"step {step + 1} loss {loss.item():.4f} in {time.time() - begun:.2f} s", flush=True)
        begun = time.time()
