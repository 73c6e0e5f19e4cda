"""Several processes are refused if sharing a batch would change the gradient, and for nothing else."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from autotune.trial.child.task import BATCHES, MOST_SAMPLES, SECONDS, LoadedTask, check_split

from .conftest import Clock

WIDTH, CLASSES = 8, 4
PAD = -100
Loss = Callable[[nn.Module, Any], Tensor]


@pytest.fixture(autouse=True)
def _compiles_again() -> Iterator[None]:
    """A trial that runs eagerly is a process of its own, which ends; this one goes on."""
    yield
    torch.compiler.set_stance("default")


class Listed(Dataset[Any]):
    """Samples in a list."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def table(count: int = 256) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(count, WIDTH, generator=generator), torch.randint(CLASSES, (count,), generator=generator)
    )


def sequences() -> Listed:
    """Token sequences, every other one long: those of one process may be much longer than another's."""
    generator = torch.Generator().manual_seed(2)
    lengths = [2 if index % 16 < 8 else 40 for index in range(256)]
    return Listed([torch.randint(CLASSES, (length,), generator=generator) for length in lengths])


def pad(samples: list[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=PAD)


def mlp(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 16), *layers, nn.ReLU(), nn.Linear(16, CLASSES))


def tagger() -> nn.Module:
    return nn.Sequential(nn.Embedding(CLASSES, 8), nn.Linear(8, CLASSES))


def classified(**options: Any) -> Loss:
    return lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1], **options)


def token_mean(model: nn.Module, batch: Tensor) -> Tensor:
    return functional.cross_entropy(model(batch.clamp(min=0)).flatten(0, 1), batch.flatten(), ignore_index=PAD)


def sequence_mean(model: nn.Module, batch: Tensor) -> Tensor:
    losses = functional.cross_entropy(model(batch.clamp(min=0)).mT, batch, ignore_index=PAD, reduction="none")
    return (losses.sum(dim=1) / (batch != PAD).sum(dim=1)).mean()


def contrastive(model: nn.Module, batch: Any) -> Tensor:
    one, other = (functional.normalize(model(view), dim=1) for view in (batch[0], batch[0].flip(1)))
    return functional.cross_entropy(one @ other.T / 0.1, torch.arange(len(batch[0])))


def noisy(strength: float, reduction: str = "mean") -> Loss:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs = batch[0] + strength * torch.randn_like(batch[0])
        return functional.cross_entropy(model(inputs), batch[1], reduction=reduction)

    return loss


def times(factor: float) -> Loss:
    return lambda model, batch: classified()(model, batch) * factor


def task(
    compute_loss: Callable[..., Any] | None = None,
    build_model: Callable[[], nn.Module] = mlp,
    dataset: Dataset[Any] | None = None,
    **parts: Any,
) -> LoadedTask:
    module = ModuleType("fake_task")
    data = table() if dataset is None else dataset
    named = {"build_model": build_model, "build_dataset": lambda: data, "compute_loss": compute_loss or classified()}
    vars(module).update(named | parts)
    return LoadedTask(module, "fake_task", "cpu")


KEPT = {
    "cross entropy": task(),
    "batch norm": task(build_model=lambda: mlp(nn.BatchNorm1d(16))),
    "dropout": task(build_model=lambda: mlp(nn.Dropout(0.5))),
    "every sequence by itself": task(sequence_mean, tagger, sequences(), collate_fn=pad),
    "sparse rows": task(lambda m, b: m(b[1]).square().mean(), lambda: nn.Embedding(CLASSES, WIDTH, sparse=True)),
    "too few samples to share": task(classified(reduction="sum"), dataset=table(1)),
    "a batch too small to share": task(classified(reduction="sum"), CURRENT={"batch_size": 2}),
}
CHANGED = {
    "a sum": task(classified(reduction="sum")),
    "a sum with a little noise": task(noisy(1e-3, "sum")),
    "classes with weights": task(classified(weight=torch.tensor([10.0, 1.0, 1.0, 1.0]))),
    "all tokens alike": task(token_mean, tagger, sequences(), collate_fn=pad),
    "negatives in the batch": task(contrastive),
    "sparse rows": task(lambda m, b: m(b[1]).square().sum(), lambda: nn.Embedding(CLASSES, WIDTH, sparse=True)),
}
NOTED = {
    "noise": (task(noisy(0.5)), "draws random numbers"),
    "no gradient": (task(times(0.0)), "zero or not finite"),
    "not a scalar": (task(classified(reduction="none")), "must return a scalar Tensor"),
    "samples that cannot be read": (task(dataset=Listed([None] * 30)), "TypeError"),
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_a_mean_over_samples_may_be_shared(kept: LoadedTask) -> None:
    why_not, _ = check_split(kept, 0, Clock())
    assert why_not is None


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
def test_any_other_loss_is_refused(changed: LoadedTask) -> None:
    why_not, note = check_split(changed, 0, Clock())
    assert "not the mean of its samples' losses" in str(why_not)
    assert note is None


@pytest.mark.parametrize(("noted", "words"), NOTED.values(), ids=NOTED)
def test_what_cannot_be_compared_is_noted_and_not_refused(noted: LoadedTask, words: str) -> None:
    why_not, note = check_split(noted, 0, Clock())
    assert why_not is None
    assert words in str(note)


def test_a_stream_is_not_looked_at() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("read")

    assert check_split(task(dataset=Stream()), 0, Clock()) == (None, None)


def test_samples_are_read_once_since_augmentation_is_random() -> None:
    reads: list[int] = []

    class Augmented(Listed):
        def __getitem__(self, index: int) -> Any:
            reads.append(index)
            return torch.randn(WIDTH), index % CLASSES

    assert check_split(task(dataset=Augmented([None] * 1000)), 0, Clock()) == (None, None)
    assert len(reads) == len(set(reads)) == BATCHES * MOST_SAMPLES


def test_a_slow_step_ends_the_check_after_the_first_batch() -> None:
    clock, steps = Clock(), []

    def slow(model: nn.Module, batch: Any) -> Tensor:
        clock.now += SECONDS
        steps.append(len(batch[0]))
        return classified()(model, batch)

    assert check_split(task(slow), 0, clock) == (None, None)
    assert steps == [MOST_SAMPLES, MOST_SAMPLES // 2, MOST_SAMPLES // 2]
