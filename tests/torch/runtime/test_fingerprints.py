"""Fingerprints tell what was tuned from what was not, and hold no names, code or data."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, TensorDataset

from autotune.knobs.task_facts import Fingerprint
from autotune.runtime import fingerprints

SECRET = "a name that nobody should read"


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


def by_data() -> nn.Module:
    """Tied behind PyTorch's back."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight.data = model[0].weight.data
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "two layers": lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)),
    "another width": lambda: nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 4)),
    "another type": lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).double(),
    "frozen": lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)),
    "tied": tied,
    "tied by data": by_data,
    "another activation": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
    "another stride": lambda: nn.Sequential(nn.Conv2d(1, 1, 1, stride=2)),
    "stride": lambda: nn.Sequential(nn.Conv2d(1, 1, 1)),
    "lazy": lambda: nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 4)),
}


def test_models_that_train_otherwise_differ_and_wrapped_ones_do_not() -> None:
    found = {name: fingerprints.of_model(make()) for name, make in MODELS.items()}
    assert len(set(found.values())) == len(found)
    assert all(fingerprints.of_model(make()) == found[name] for name, make in MODELS.items())
    own = MODELS["two layers"]()
    for wrapped in (nn.DataParallel(own), torch.compile(own, backend="eager")):
        assert fingerprints.of_model(wrapped) == found["two layers"]


def test_optimizers_differ_by_class_and_options() -> None:
    weight = nn.Parameter(torch.zeros(1))

    class AdamW(torch.optim.AdamW):
        """A user's own of a well-known name."""

    optimizers = [
        torch.optim.AdamW([weight]),
        AdamW([weight]),
        torch.optim.SGD([weight], lr=0.1),
        torch.optim.AdamW([{"params": [weight]}, {"params": [nn.Parameter(torch.zeros(1))]}]),
        torch.optim.AdamW([{"params": [weight], "scale": 2}]),
    ]
    assert len(set(map(fingerprints.of_optimizer, optimizers))) == len(optimizers)
    again = torch.optim.AdamW([UninitializedParameter()], lr=0.5, fused=False)
    torch.optim.lr_scheduler.OneCycleLR(again, max_lr=0.1, total_steps=10)
    assert fingerprints.of_optimizer(again) == fingerprints.of_optimizer(optimizers[0])


class Own(Dataset[Any]):
    """Holds what must not get into a profile."""

    def __init__(self, size: int = 4) -> None:
        self.name, self.samples = SECRET, list(range(size))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return index


class Other(Own):
    """Reads otherwise."""

    def __getitem__(self, index: int) -> Any:
        return -index


def scaled(value: Any, by: float = 1.0) -> Any:
    return value * by


def shifted(value: Any) -> Any:
    return value + 1


def print_number(worker: int) -> None:
    print(worker)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "plain": lambda: DataLoader(Own()),
    "another class": lambda: DataLoader(Other()),
    "collate": lambda: DataLoader(Own(), collate_fn=shifted),
    "another collate": lambda: DataLoader(Own(), collate_fn=scaled),
    "start of workers": lambda: DataLoader(Own(), worker_init_fn=print_number),
    "shuffled": lambda: DataLoader(Own(), shuffle=True),
    "own batches": lambda: DataLoader(
        Own(), batch_sampler=type("Own", (BatchSampler,), {})(SequentialSampler([1]), 1, False)
    ),
    "a part": lambda: DataLoader(torch.utils.data.Subset(Own(), [0])),
    "tensors": lambda: DataLoader(TensorDataset(torch.ones(4))),
}


def test_loaders_differ_by_what_a_batch_passes_through() -> None:
    found = {name: fingerprints.of_loader(make()) for name, make in LOADERS.items()}
    assert len(set(found.values())) == len(found)
    assert all(fingerprints.of_loader(make()) == found[name] for name, make in LOADERS.items())
    sizes_and_workers = DataLoader(Own(size=9), batch_size=3, num_workers=2, drop_last=True)
    assert fingerprints.of_loader(sizes_and_workers) == found["plain"]
    assert fingerprints.of_loader(DataLoader(Own(), collate_fn=functools.partial(shifted))) == found["collate"]


def test_a_fingerprint_is_the_same_after_its_way_through_a_file() -> None:
    found = Fingerprint().with_one("models", "ab").with_one("models", "ab").with_one("loaders", "cd")
    assert found == Fingerprint(models=("ab",), loaders=("cd",))
    assert SECRET not in fingerprints.of_loader(DataLoader(Own()))
