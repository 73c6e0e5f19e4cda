"""Tiny trainings for tests in this process and in others."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.knobs.settings import Settings
from autotune.runtime.session import Session


def quiet(**changes: Any) -> Settings:
    """Settings that leave this process's threads as they are."""
    return Settings(
        **{"threads": torch.get_num_threads(), "interop_threads": torch.get_num_interop_threads(), **changes}
    )


@contextmanager
def prepared(*objects: Any, **changes: Any) -> Iterator[Session]:
    """A session on CPUs with ``changes`` to these settings, which has prepared ``objects``."""
    with Session(quiet(**changes), device="cpu") as session:
        session.prepare(*objects)
        yield session


def workers_of(loader: DataLoader[Any]) -> int:
    """Loader workers that the next pass starts, if nothing forbids them then."""
    served = vars(loader).get("_get_iterator")
    found: int = served.__self__.attributes.get("num_workers", loader.num_workers) if served else loader.num_workers
    return found


def dataset(samples: int) -> TensorDataset:
    """A small regression problem."""
    random = torch.Generator().manual_seed(7)
    inputs = torch.randn(samples, 8, generator=random)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())


def network() -> nn.Module:
    """A small model, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def shuffled(samples: int, batch: int, **options: Any) -> DataLoader[Any]:
    """A loader that shuffles by a generator of its own."""
    return DataLoader(
        dataset(samples), batch_size=batch, shuffle=True, generator=torch.Generator().manual_seed(3), **options
    )


def train(
    session: Session, loader: DataLoader[Any], epochs: int = 2, **options: Any
) -> tuple[list[torch.Tensor], list[float]]:
    """Parameters after ``epochs``, and the loss of every optimizer step on this process."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, prepared = session.prepare(model, optimizer, loader, **options)
    losses = []
    for _ in range(epochs):
        for inputs, targets in prepared:
            loss = nn.functional.mse_loss(model(inputs), targets)
            session.backward(loss)
            losses.append(loss.item() * session.part.weight)
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()], losses
