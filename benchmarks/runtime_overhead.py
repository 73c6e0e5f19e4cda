"""What a training step pays for going through `autotune`: microseconds per step over the same bare loop.

    python -m benchmarks.runtime_overhead [--steps 100] [--rounds 300]

A bare loop and a prepared one take turns in one process, in random order, on a model so small that Python is most of
its step. Each round gives one difference; the median over rounds is printed, with the quartiles. Times are the CPU
time of the process on one thread: the loops never wait, and a neighbour's load then counts for neither. The limit is
10 us, 1 % of a step of 1 ms.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.knobs.settings import Settings
from autotune.runtime.session import Session

LIMIT = 10.0
BATCH = 4


def build(steps: int) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[tuple[torch.Tensor, ...]]]:
    """Build a linear model, SGD, and a loader of ``steps`` tiny batches."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    data = TensorDataset(torch.randn(steps * BATCH, 4), torch.randn(steps * BATCH, 1))
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), DataLoader(data, batch_size=BATCH)


def bare(steps: int) -> Callable[[], None]:
    """Return a function that trains an epoch without autotune."""
    model, optimizer, loader = build(steps)
    loss_of = nn.MSELoss()

    def epoch() -> None:
        for inputs, targets in loader:
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return epoch


def tuned(steps: int, session: Session) -> Callable[[], None]:
    """Return a function that does the same work with autotune."""
    model, optimizer, loader = session.prepare(*build(steps))
    loss_of = nn.MSELoss()

    def epoch() -> None:
        for inputs, targets in loader:
            loss = loss_of(model(inputs), targets)
            session.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

    return epoch


def seconds(epoch: Callable[[], None]) -> float:
    """Return the CPU time of one epoch."""
    started = time.process_time()
    epoch()
    return time.process_time() - started


def differences(steps: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return microseconds per step, round by round: what the prepared loop adds, and the bare loop's own."""
    settings = Settings(batch_size=BATCH, threads=1, interop_threads=torch.get_num_interop_threads())
    order = random.Random(0)
    with Session(settings, device="cpu") as session:
        epochs = {"bare": bare(steps), "tuned": tuned(steps, session)}
        for epoch in epochs.values():
            epoch()
        added, own = [], []
        for _ in range(rounds):
            names = order.sample(sorted(epochs), 2)
            took = {name: seconds(epochs[name]) / steps * 1e6 for name in names}
            added.append(took["tuned"] - took["bare"])
            own.append(took["bare"])
    return added, own


def main() -> int:
    """Print the overhead; return 1 if it is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    added, own = differences(arguments.steps, arguments.rounds)
    low, median, high = statistics.quantiles(added, n=4)
    print(
        f"bare step {statistics.median(own):.1f} us; autotune adds {median:.2f} us (quartiles {low:.2f} to {high:.2f})"
    )
    print(f"that is {median / 1e3 * 100:.3f} % of a step of 1 ms; the limit is {LIMIT / 1e3 * 100:g} %")
    return 0 if median <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
