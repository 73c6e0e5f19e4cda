"""Own batches: random pieces of a memory-mapped file of tokens, which the script makes where it is missing."""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

DATA = Path(__file__).parent / "data" / "tokens.bin"


def prepare() -> None:
    DATA.parent.mkdir(exist_ok=True)
    np.random.default_rng(0).integers(0, 64, 100_000, dtype=np.uint16).tofile(DATA)


def get_batch(batch_size: int, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = np.memmap(DATA, dtype=np.uint16, mode="r")
    starts = torch.randint(len(tokens) - block - 1, (batch_size,))
    pieces = torch.stack([torch.from_numpy(tokens[start : start + block + 1].astype(np.int64)) for start in starts])
    return pieces[:, :-1], pieces[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if not DATA.exists():
        prepare()
    model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, targets = get_batch(16, 32)
    for step in range(1, arguments.steps + 1):
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        inputs, targets = get_batch(16, 32)  # the next batch while the device works
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step <= 20:
            print(f"step {step} loss {loss.item()!r}", flush=True)


if __name__ == "__main__":
    main()
