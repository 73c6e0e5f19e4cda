"""A training script with one bottleneck, by name, and the same with the advice of its diagnosis followed.

    python benchmarks/diagnosis/train.py CASE [--advised] [--threads N] [--seconds 4]

It prints the samples per second of the second half of its time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

CASES = ("slow_dataset", "tiny_kernels", "threads", "update", "item", "logging", "validation")
RARELY = 100


class Slow(Dataset):
    """Samples that come from afar."""

    def __len__(self) -> int:
        return 8192

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        time.sleep(0.0005)
        return torch.full((64,), index % 10 / 10), index % 10


class Cell(nn.Module):
    """A recurrent cell in many small operators."""

    def __init__(self) -> None:
        super().__init__()
        self.decay, self.out = nn.Parameter(torch.full((64,), 0.9)), nn.Linear(64, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        state = inputs
        for _ in range(150):
            state = state * self.decay + inputs
        return self.out(state)


class Table(nn.Module):
    """A large embedding, of which a batch reads few rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.out = nn.Embedding(100_000, 32), nn.Linear(32, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(self.rows(inputs[:, 0].long()))


def layers(*widths: int) -> nn.Module:
    """Build linear layers of these widths with ReLU between them."""
    pairs = list(itertools.pairwise(widths))
    return nn.Sequential(*(part for pair in pairs for part in (nn.Linear(*pair), nn.ReLU())))


def confidences(outputs: Tensor, targets: Tensor) -> list[tuple[float, bool]]:
    """Ask sample by sample how sure the model is, and if it is right."""
    rows = [(output.softmax(0), target.item()) for output, target in zip(outputs, targets, strict=True)]
    return [(row.max().item(), row.argmax().item() == target) for row, target in rows]


def log_metrics(step: int, loss: float) -> None:
    """Print a line for each of many figures."""
    for figure in range(100):
        print(json.dumps({"step": step, "figure": figure, "loss": loss}), flush=True)


@torch.no_grad()
def validate(model: nn.Module, batches: DataLoader) -> float:
    """Return the mean loss of the validation data."""
    model.eval()
    losses = [nn.functional.cross_entropy(model(inputs), targets).item() for inputs, targets in batches]
    model.train()
    return sum(losses) / len(losses)


def main() -> None:
    """Train for some seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--advised", action="store_true")
    parser.add_argument("--threads", type=int, help="By default PyTorch's own number.")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    case, advised = options.case, options.advised
    if options.threads or case == "threads":
        torch.set_num_threads(options.threads or (2 if advised else 24))
    inputs = torch.rand(8192, 64)
    data: Dataset = Slow() if case == "slow_dataset" else TensorDataset(inputs, torch.arange(8192) % 10)
    batch = 16 if case in ("tiny_kernels", "update") else 64
    batch *= 8 if advised and case == "tiny_kernels" else 1
    workers = 4 if advised and case == "slow_dataset" else 0
    loader = DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers)
    held_out = DataLoader(TensorDataset(inputs[:512], torch.arange(512) % 10), batch_size=64)
    models: dict[str, Callable[[], nn.Module]] = {
        "tiny_kernels": Cell,
        "update": Table,
        "threads": lambda: layers(64, 1024, 1024, 10),
    }
    model = models.get(case, lambda: layers(64, 128, 10))()
    fused = {"fused": True} if case == "update" and advised else {}
    optimizer = torch.optim.AdamW(model.parameters(), **fused)
    every = RARELY if advised else 1
    began, step, samples = time.perf_counter(), 0, 0
    half = began
    while (now := time.perf_counter()) < began + options.seconds:
        for features, targets in loader:
            outputs = model(features)
            loss = nn.functional.cross_entropy(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if case == "item" and step % every == 0:
                confidences(outputs, targets)
            if case == "logging" and step % every == 0:
                log_metrics(step, loss.item())
            if case == "validation" and step % every == 0:
                validate(model, held_out)
            step, samples, now = step + 1, samples + len(targets), time.perf_counter()
            if half == began and now > began + options.seconds / 2:
                half, samples = now, 0
            if now > began + options.seconds:
                break
    print(samples / (now - half))


if __name__ == "__main__":
    main()
