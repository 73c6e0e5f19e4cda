"""A prepared loader gives the batches of the user's loader, and leaves random numbers where that leaves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from autotune.runtime.order import settled
from torch.utils.data import DataLoader, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data import WeightedRandomSampler as Weighted

from autotune.runtime.session import Session

from .records import quiet

DATA = list(range(23))


class Lazy(Sampler[int]):
    """Decides about each sample when it is read, from PyTorch's own random numbers."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(10):
            yield int(torch.randint(len(DATA), ()))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(4)


LOADERS: dict[str, Callable[[], dict[str, Any]]] = {
    "in order": dict,
    "shuffled": lambda: {"shuffle": True},
    "generator": lambda: {"shuffle": True, "generator": generator()},
    "generator, drop last": lambda: {"shuffle": True, "generator": generator(), "drop_last": True},
    "replacement": lambda: {"sampler": RandomSampler(DATA, replacement=True, num_samples=70)},
    "replacement, generator": lambda: {"sampler": RandomSampler(DATA, replacement=True, generator=generator())},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(3, 17))},
    "weighted": lambda: {"sampler": Weighted([1.0] * 23, 30, generator=generator())},
    "own": lambda: {"sampler": Lazy()},
}


def read(loader: Any, own: DataLoader[Any], stop: int | None) -> list[Any]:
    """Two passes, with what the random generators hold between batches; the first one ends after ``stop`` batches."""
    seen: list[Any] = []
    for last in (stop, None):
        for k, batch in enumerate(loader):
            seen.append(batch.tolist())
            seen.append(int(torch.randint(1000, ())))
            if own.generator is not None:
                seen.append(own.generator.get_state().tolist())
            if k == last:
                break
        seen.append(torch.get_rng_state().sum().item())
    return seen


@pytest.mark.parametrize("stop", [None, 0, 2, 3])
@pytest.mark.parametrize("size", [4, 23, 8])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", LOADERS)
def test_order_and_random_numbers_are_plain_pytorchs(kind: str, workers: int, size: int, stop: int | None) -> None:
    torch.manual_seed(1)
    plain = DataLoader(DATA, batch_size=size, **LOADERS[kind]())
    expected = read(plain, plain, stop)
    torch.manual_seed(1)
    own = DataLoader(DATA, batch_size=size, **LOADERS[kind]())
    with Session(quiet(batch_size=size, num_workers=workers), device="cpu") as session:
        assert read(session.prepare(own), own, stop) == expected
        assert ("num_workers" in dict(session.not_applied)) is (workers > 0 and settled(own) is not None)


def test_zipped_loaders_keep_their_orders() -> None:
    def pairs(workers: int | None) -> list[Any]:
        torch.manual_seed(2)
        loaders: Any = [DataLoader(DATA, batch_size=size, shuffle=True) for size in (4, 5)]
        if workers is None:
            return [[a.tolist(), b.tolist()] for _ in range(2) for a, b in zip(*loaders, strict=False)]
        with Session(quiet(batch_size=4, num_workers=workers), device="cpu") as session:
            loaders = session.prepare(*loaders)
            return [[a.tolist(), b.tolist()] for _ in range(2) for a, b in zip(*loaders, strict=False)]

    assert pairs(1) == pairs(0) == pairs(None)


@pytest.mark.parametrize("persistent", [False, True])
def test_fewer_workers_than_the_users_draw_the_same(persistent: bool) -> None:
    def orders(workers: int | None) -> list[Any]:
        torch.manual_seed(2)
        own: Any = DataLoader(DATA, batch_size=4, shuffle=True, num_workers=2, persistent_workers=persistent)
        if workers is None:
            return read(own, own, 1)
        with Session(quiet(batch_size=4, num_workers=workers), device="cpu") as session:
            return read(session.prepare(own), own, 1)

    assert orders(1) == orders(None)
    assert orders(0) == orders(None)


def test_workers_see_a_dataset_that_changes_between_epochs() -> None:
    class Changing:
        factor = 1

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return self.factor * index

    data = Changing()
    with Session(quiet(batch_size=2, num_workers=1, persistent_workers=True), device="cpu") as session:
        loader = session.prepare(DataLoader(data, batch_size=2))  # type: ignore[arg-type]
        first = torch.cat(list(loader)).tolist()
        data.factor = 10
        assert torch.cat(list(loader)).tolist() == [10 * value for value in first]


def test_a_sampler_of_a_known_class_is_settled_and_a_subclass_is_not() -> None:
    class Curriculum(RandomSampler):
        pass

    assert settled(DataLoader(DATA, sampler=SequentialSampler(DATA))) is None
    assert "Curriculum" in (settled(DataLoader(DATA, sampler=Curriculum(DATA))) or "")
    assert "as it goes" in (settled(DataLoader(DATA, **LOADERS["replacement, generator"]())) or "")
