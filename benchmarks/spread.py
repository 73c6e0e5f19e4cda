"""Shows if the comparison of first steps tells a training that does not repeat bit for bit from another training.

    python -m benchmarks.spread [--noise 1e-7 1e-5] [--factors 3 10 30]

Gradients get a relative noise, as atomic additions on GPUs give them. For each factor: of 200 recordings under the
same settings, how many are refused; of 56 with a fault, how many are accepted. The user's own settings are recorded
three times, as `tune` does.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.knobs.settings import Settings
from autotune.trial.child import first_steps
from autotune.trial.child.first_steps import LEAST_STEPS, Recorder, Recording, differences

BATCH, CLASSES, SAME = 8, 4, 200
OWN, OTHER = Settings(batch_size=BATCH), Settings(batch_size=BATCH, num_workers=1)
"""Another number of workers asks for equal numbers within the spread, not for rounding."""


class Sequences(nn.Module):
    """An LSTM that classifies."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, CLASSES)

    def forward(self, batch: Tensor) -> Any:
        return self.head(self.cells(batch)[0][:, -1])


def images() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Dropout(0.1), nn.Linear(8 * 64, CLASSES)),
    )


def attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(12 * 16, CLASSES))


MODELS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, CLASSES)), (20,)),
    "images": (images, (3, 12, 12)),
    "lstm": (Sequences, (12, 8)),
    "attention": (attention, (12, 16)),
}
OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
}


def record(model: str, optimizer: str, noise: float, luck: int, fault: str = "") -> Recording:
    """Record the first steps of a training; ``luck`` is the seed of the ``noise``."""
    torch.manual_seed(0)
    build, shape = MODELS[model]
    network = build()
    data = TensorDataset(torch.randn(128, *shape), torch.randint(CLASSES, (128,)))
    steps = OPTIMIZERS[optimizer](network.parameters())
    source = torch.Generator().manual_seed(luck)
    for number, parameter in enumerate(network.parameters()):
        off = {"layer off by 1 %": 1.01, "frozen layer": 0.0}.get(fault, 1.0) if number == 0 else 1.0
        parameter.register_hook(
            lambda g, off=off: g * off * (1 + noise * torch.randn(g.shape, generator=source))  # type: ignore[misc]
        )
    if fault == "rate off by 2 %":
        steps.param_groups[0]["lr"] *= 1.02
    loader = DataLoader(data, BATCH, shuffle=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.01 if fault == "loss smoothed" else 0.0)
    with Recorder(lambda: [steps], network.buffers, lambda: loader) as recorder:
        for number, (inputs, labels) in enumerate(itertools.islice(loader, LEAST_STEPS)):
            recorder.takes((inputs, labels))
            kept = slice(1 if fault == "sample left out" and number == 1 else 0, None)
            loss = criterion(network(inputs)[kept], labels[kept])
            recorder.records_loss(loss.detach())
            if fault != "gradients added up" or number != 2:
                steps.zero_grad()
            loss.backward()
            if fault == "gradients clipped":
                nn.utils.clip_grad_norm_(network.parameters(), 0.1)
            steps.step()
        return recorder.finish()


FAULTS = (
    *("layer off by 1 %", "rate off by 2 %", "loss smoothed", "sample left out"),
    *("gradients added up", "gradients clipped", "frozen layer"),
)


def refused(theirs: list[Recording], ours: Recording) -> bool:
    """Return True if ``ours`` differs from the user's three recordings."""
    return bool(differences(theirs[0], ours, OWN, OTHER, theirs[1:]))


def rows(noise: float, factors: list[float]) -> Iterator[str]:
    """Yield a line for each factor."""
    pairs = [*itertools.product(MODELS, OPTIMIZERS)]
    own = {pair: [record(*pair, noise, luck) for luck in range(3)] for pair in pairs}
    each = SAME // len(pairs)
    same = [(pair, record(*pair, noise, 10 + luck)) for pair in pairs for luck in range(each)]
    faults = [(pair, fault, record(*pair, noise, 9, fault)) for pair in pairs for fault in FAULTS]
    for factor in factors:
        with mock.patch.object(first_steps, "FACTOR", factor):
            wrong = sum(refused(own[pair], ours) for pair, ours in same)
            missed = [f"{fault} ({'/'.join(pair)})" for pair, fault, ours in faults if not refused(own[pair], ours)]
        found = f"{wrong} of {len(same)} | {len(missed)} of {len(faults)}"
        yield f"| {noise:g} | {factor:g} | {found} {', '.join(missed)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, nargs="+", default=[1e-7, 1e-6, 1e-5])
    parser.add_argument("--factors", type=float, nargs="+", default=[3.0, 10.0, 30.0])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| noise | factor | same, refused | faults, accepted |\n|---|---|---|---|")
    for noise in options.noise:
        for line in rows(noise, options.factors):
            print(line, flush=True)


if __name__ == "__main__":
    main()
