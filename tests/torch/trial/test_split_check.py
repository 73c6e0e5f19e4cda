"""Small real tasks, in this process: which losses several processes keep, and which they would reweigh."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from autotune.trial.child.split_samples import LOOKED_AT
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from autotune.trial.child.loaded_task import LoadedTask
from autotune.trial.child.split_check import CHECK_SECONDS, SplitResult, check

WIDTH, CLASSES, LONGEST, PAD = 6, 4, 12, -100
FINE = SplitResult()


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """One thread, since small steps wait for each other; and a check is the last thing that its process does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    if "torch._dynamo" in sys.modules:
        torch.compiler.set_stance("default")


class Listed(Dataset[Any]):
    """Samples that are there already."""

    def __init__(self, samples: Sequence[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class Together(Dataset[Any]):
    """Samples that come in lists alone."""

    def __init__(self, table: Dataset[Any]) -> None:
        self.table = table

    def __len__(self) -> int:
        return 200

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.table[index] for index in indices]

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("the DataLoader would not ask")


class Sealed:
    def __init__(self) -> None:
        self.inputs = torch.randn(WIDTH)

    def __copy__(self) -> Sealed:
        raise RuntimeError("one of a kind")


def table(count: int = 200) -> Dataset[Any]:
    """Rows with a class that they say something about."""
    inputs = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, inputs.argmax(dim=1) % CLASSES)


def sequences(count: int = 100) -> Dataset[Any]:
    """Sequences of 1 to ``LONGEST`` tokens, each with a class."""
    rng = random.Random(0)
    lengths = [rng.randint(1, LONGEST) for _ in range(count)]
    return Listed([torch.tensor([rng.randrange(CLASSES) for _ in range(length)]) for length in lengths])


def padded_before(count: int = 100) -> Dataset[Any]:
    """The same, as rows of one length with `PAD` where there is no target."""
    rows = [functional.pad(row, (0, LONGEST - len(row)), value=PAD) for row in sequences(count).samples]  # type: ignore[attr-defined]
    return TensorDataset(torch.stack(rows).clamp(min=0), torch.stack(rows))


def pad(samples: list[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=PAD)


def pad_in_place(samples: list[dict[str, Tensor]]) -> Tensor:
    """Leaves its samples changed, as many do."""
    longest = max(len(sample["x"]) for sample in samples)
    for sample in samples:
        sample["x"] = functional.pad(sample["x"], (0, longest - len(sample["x"])), value=PAD)
    return torch.stack([sample["x"] for sample in samples])


def mlp(*extra: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 16), *extra, nn.ReLU(), nn.Linear(16, CLASSES))


def tagger() -> nn.Module:
    """Tokens to the logits of each."""
    return nn.Sequential(nn.Embedding(CLASSES, 8), nn.Linear(8, CLASSES))


class Recurrent(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.rnn = nn.LSTM(1, 8, num_layers=2, batch_first=True, dropout=dropout)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.rnn(inputs.unsqueeze(2))[0][:, -1])


class Detector(nn.Module):
    """Gives losses while it trains and answers else, as torchvision's do."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self.layers, self.reduction = mlp(), reduction

    def forward(self, inputs: Tensor, targets: Tensor) -> Any:
        logits = self.layers(inputs)
        if not self.training:
            return logits.argmax(dim=1)
        return {"loss": functional.cross_entropy(logits, targets, reduction=self.reduction)}


class OwnDropout(nn.Module):
    """Dropout that no module says."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(functional.dropout(inputs, 0.5, self.training))


class Frozen(nn.Module):
    """One part that is not trained and one that takes no part."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.spare = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES), nn.Linear(2, 2)
        self.body.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs))


def classified(**options: Any) -> Callable[[nn.Module, Any], Tensor]:
    def compute_loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, targets = batch
        return functional.cross_entropy(model(inputs), targets, **options)

    return compute_loss


def fitted(model: nn.Module, batch: Any) -> Tensor:
    inputs, _ = batch
    return functional.mse_loss(model(inputs), inputs[:, :CLASSES])


def token_mean(model: nn.Module, batch: Any) -> Tensor:
    inputs, targets = batch if isinstance(batch, list) else (batch.clamp(min=0), batch)
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=PAD)


def sequence_mean(model: nn.Module, batch: Tensor) -> Tensor:
    losses = functional.cross_entropy(model(batch.clamp(min=0)).mT, batch, ignore_index=PAD, reduction="none")
    return (losses.sum(dim=1) / (batch != PAD).sum(dim=1)).mean()


def contrastive(model: nn.Module, batch: Any) -> Tensor:
    inputs, _ = batch
    one, other = (functional.normalize(model(view), dim=1) for view in (inputs, inputs.flip(1)))
    return functional.cross_entropy(one @ other.T / 0.1, torch.arange(len(inputs)))


def hardest_triplets(model: nn.Module, batch: Any) -> Tensor:
    inputs, targets = batch
    points = model(inputs)
    apart = torch.cdist(points, points)
    same = targets[:, None] == targets[None]
    farthest = torch.where(same, apart, 0.0).amax(dim=1)
    nearest = torch.where(same, 1e9, apart).amin(dim=1)
    return functional.relu(farthest - nearest + 1.0).mean()


def noisy(strength: float, reduction: str = "mean") -> Callable[[nn.Module, Any], Tensor]:
    def compute_loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, targets = batch
        logits = model(inputs + strength * torch.randn_like(inputs))
        return functional.cross_entropy(logits, targets, reduction=reduction)

    return compute_loss


def rooted_in_time(model: nn.Module, batch: Any) -> Tensor:
    """A generator of its own: no seed of ours reaches it."""
    inputs, targets = batch
    return functional.cross_entropy(model(inputs + torch.randn(inputs.shape, generator=OWN)), targets)


def fails_below(samples: int) -> Callable[[nn.Module, Any], Tensor]:
    def compute_loss(model: nn.Module, batch: Any) -> Tensor:
        if len(batch[0]) < samples:
            raise ValueError(f"needs {samples} samples\nand says more")
        return fitted(model, batch)

    return compute_loss


def by_four(inputs: Tensor) -> Tensor:
    return inputs.view(-1, 4, WIDTH)


def nan_below(samples: int) -> Callable[[nn.Module, Any], Tensor]:
    return lambda model, batch: fitted(model, batch) * (1.0 if len(batch[0]) >= samples else float("nan"))


def nothing_below(samples: int) -> Callable[[nn.Module, Any], Tensor]:
    """A constant where a batch holds no pair, as losses over mined pairs give."""
    return lambda model, batch: fitted(model, batch) if len(batch[0]) >= samples else torch.zeros(())


def never(*_: Any) -> Any:
    raise AssertionError("compiled")


OWN = torch.Generator().manual_seed(3)
FIT = classified()
LIKES_ONE_CLASS = torch.tensor([10.0, 1.0, 1.0, 1.0])


def task(
    compute_loss: Callable[..., Any] = FIT,
    build_model: Callable[[], nn.Module] = mlp,
    dataset: Dataset[Any] | None = None,
    **parts: Any,
) -> LoadedTask:
    module = ModuleType("fake_task")
    data = table() if dataset is None else dataset
    named = {"build_model": build_model, "build_dataset": lambda: data, "compute_loss": compute_loss, **parts}
    for name, value in named.items():
        setattr(module, name, value)
    return LoadedTask(module, "fake_task", "cpu")


KEPT = {
    "mean squares": task(fitted),
    "cross entropy": task(),
    "label smoothing": task(classified(label_smoothing=0.1)),
    "batch norm": task(build_model=lambda: mlp(nn.BatchNorm1d(16))),
    "batch norm without statistics": task(build_model=lambda: mlp(nn.BatchNorm1d(16, track_running_stats=False))),
    "dropout": task(build_model=lambda: mlp(nn.Dropout(0.5))),
    "dropout by hand": task(build_model=OwnDropout),
    "layer norm": task(build_model=lambda: mlp(nn.LayerNorm(16))),
    "spectral norm": task(build_model=lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, CLASSES))),
    "recurrent": task(build_model=Recurrent),
    "recurrent with dropout": task(build_model=lambda: Recurrent(0.5)),
    "losses only in training": task(lambda m, b: m(*b)["loss"], lambda: Detector("mean")),
    "some parameters frozen, some unused": task(build_model=Frozen),
    "bfloat16": task(lambda m, b: fitted(m, [b[0].bfloat16(), b[1]]), lambda: mlp().bfloat16()),
    "every sequence by itself": task(sequence_mean, tagger, sequences(), collate_fn=pad),
    "weights where there is one class": task(
        classified(weight=LIKES_ONE_CLASS), dataset=TensorDataset(torch.randn(64, WIDTH), torch.ones(64).long())
    ),
    "a compiled model": task(build_model=lambda: torch.compile(mlp(), backend=never)),
    "samples that are read in lists": task(dataset=Together(table())),
    "samples that cannot be copied": task(
        lambda m, b: m(b).square().mean(),
        dataset=Listed([Sealed() for _ in range(50)]),
        collate_fn=lambda samples: torch.stack([sample.inputs for sample in samples]),
    ),
    "chunks of four samples": task(lambda m, b: torch.stack([fitted(m, [x, None]) for x in by_four(b[0])]).mean()),
    "two samples": task(dataset=table(2)),
    "three samples": task(dataset=table(3)),
    "sparse rows": task(lambda m, b: m(b[1]).square().mean(), lambda: nn.Embedding(CLASSES, WIDTH, sparse=True)),
    "a batch of one": task(classified(reduction="sum"), CURRENT={"batch_size": 1}),
    "one sample": task(classified(reduction="sum"), dataset=table(1)),
    "no samples": task(dataset=Listed([])),
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_a_mean_over_samples_may_be_shared(kept: LoadedTask) -> None:
    assert check(kept, 0, Clock()) == FINE


REWEIGHED = {
    "a sum": task(classified(reduction="sum")),
    "a sum where losses come only in training": task(lambda m, b: m(*b)["loss"], lambda: Detector("sum")),
    "a sum after batch norm": task(classified(reduction="sum"), lambda: mlp(nn.BatchNorm1d(16))),
    "a sum after dropout": task(classified(reduction="sum"), lambda: mlp(nn.Dropout(0.5))),
    "a sum with a little noise": task(noisy(1e-3, "sum")),
    "classes with weights": task(classified(weight=LIKES_ONE_CLASS)),
    "classes with weights, all alike in turn": task(
        classified(weight=LIKES_ONE_CLASS),
        dataset=Listed([(torch.randn(WIDTH), torch.tensor(index % CLASSES)) for index in range(256)]),
    ),
    "a rare class with a weight": task(
        classified(weight=torch.tensor([1.0, 50.0])),
        lambda: nn.Linear(WIDTH, 2),
        Listed([(torch.randn(WIDTH), torch.tensor(int(index % 200 == 0))) for index in range(5000)]),
    ),
    "a rare class with a weight, and sizes that vary": task(
        lambda m, b: functional.cross_entropy(m(b[0]), b[1], torch.tensor([1.0, 50.0])),
        lambda: nn.Linear(1, 2),
        Listed([(torch.randn(index % 7 + 1), torch.tensor(int(index % 200 == 0))) for index in range(5000)]),
        collate_fn=lambda samples: (
            torch.stack([x.sum(0, keepdim=True) for x, _ in samples]),
            torch.stack([y for _, y in samples]),
        ),
    ),
    "an ignored class": task(classified(ignore_index=1)),
    "all tokens alike, padded by collate_fn": task(token_mean, tagger, sequences(), collate_fn=pad),
    "all tokens alike, padded in the dataset": task(token_mean, tagger, padded_before()),
    "all tokens alike, padded in place": task(
        token_mean,
        tagger,
        Listed([{"x": row} for row in sequences().samples]),  # type: ignore[attr-defined]
        collate_fn=pad_in_place,
    ),
    "negatives in the batch": task(contrastive),
    "triplets in the batch": task(hardest_triplets),
    "triplets of many classes": task(
        hardest_triplets,
        dataset=Listed([(torch.randn(WIDTH), torch.tensor(index // 50)) for index in range(1000)]),
    ),
    "a gradient only with enough samples": task(nothing_below(16)),
    "bfloat16": task(lambda m, b: classified(reduction="sum")(m, [b[0].bfloat16(), b[1]]), lambda: mlp().bfloat16()),
    "sparse rows": task(lambda m, b: m(b[1]).square().sum(), lambda: nn.Embedding(CLASSES, WIDTH, sparse=True)),
    "two samples": task(classified(reduction="sum"), dataset=table(2)),
    "a batch of two": task(classified(reduction="sum"), CURRENT={"batch_size": 2}),
}


@pytest.mark.parametrize("reweighed", REWEIGHED.values(), ids=REWEIGHED)
def test_any_other_loss_is_refused(reweighed: LoadedTask) -> None:
    result = check(reweighed, 0, Clock())
    assert result.why_not is not None, result
    assert "not the mean of its samples' losses" in result.why_not
    assert result.note is None


def test_the_reason_says_how_far_off_the_gradient_is() -> None:
    result = check(task(classified(reduction="sum")), 0, Clock())
    assert "is off by 50%" in str(result.why_not)
    assert "a mean over samples would not" in str(result.why_not)


def test_a_part_that_fails_is_a_reason_with_its_first_line() -> None:
    why_not = str(check(task(fails_below(16)), 0, Clock()).why_not)
    assert "fails with ValueError: needs 16 samples)" in why_not
    assert "says more" not in why_not


def test_a_part_that_is_not_finite_is_a_reason() -> None:
    assert "is not finite" in str(check(task(nan_below(16)), 0, Clock()).why_not)


NOTED = {
    "noise": (task(noisy(0.5)), "draws random numbers"),
    "noise of its own": (task(rooted_in_time), "draws random numbers"),
    "not a number": (task(lambda m, b: fitted(m, b) * float("nan")), "zero or not finite"),
    "no gradient": (task(lambda m, b: 0 * fitted(m, b)), "zero or not finite"),
    "a constant": (task(lambda m, b: torch.zeros(())), "zero or not finite"),
    "fails on all": (task(fails_below(1000)), "ValueError: needs 1000 samples"),
    "not a scalar": (task(classified(reduction="none")), "must return a scalar Tensor"),
    "samples that cannot be read": (task(dataset=Listed([None] * 30)), "TypeError"),
}


@pytest.mark.parametrize(("noted", "words"), NOTED.values(), ids=NOTED)
def test_what_cannot_be_compared_is_noted_and_not_refused(noted: LoadedTask, words: str) -> None:
    result = check(noted, 0, Clock())
    assert result.why_not is None
    assert words in str(result.note)


def seldom(draw: Callable[[int], Tensor], chance: float) -> Callable[[nn.Module, Any], Tensor]:
    """Now and then a sample is left out."""
    return lambda model, batch: FIT(model, [batch[0] * (draw(len(batch[0])) > chance)[:, None], batch[1]])


@pytest.mark.parametrize("chance", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("draw", [torch.rand, lambda count: torch.rand(count, generator=OWN)], ids=["seeded", "own"])
def test_what_is_drawn_now_and_then_is_no_difference(draw: Callable[[int], Tensor], chance: float) -> None:
    results = [check(task(seldom(draw, chance)), seed, Clock()) for seed in range(10)]
    assert [result.why_not for result in results] == [None] * 10


def test_an_iterable_dataset_is_not_looked_at() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("read")

    assert check(task(dataset=Stream()), 0, Clock()) == FINE


def test_samples_are_read_once_since_augmentation_is_random() -> None:
    reads: list[int] = []

    class Augmented(Dataset[Any]):
        def __len__(self) -> int:
            return 10 * LOOKED_AT

        def __getitem__(self, index: int) -> Any:
            reads.append(index)
            return torch.randn(WIDTH), index % CLASSES

    assert check(task(dataset=Augmented()), 0, Clock()) == FINE
    assert len(reads) == len(set(reads)) == LOOKED_AT


def test_a_slow_step_costs_no_more_than_the_limit_and_is_noted() -> None:
    clock, steps = Clock(), []

    def compute_loss(model: nn.Module, batch: Any) -> Tensor:
        clock.now += CHECK_SECONDS
        steps.append(len(batch[0]))
        return classified(reduction="sum")(model, batch)

    result = check(task(compute_loss), 0, clock)
    assert (result.why_not, steps) == (None, [4])
    assert "takes too long" in str(result.note)


def test_where_time_is_short_a_few_samples_tell() -> None:
    clock = Clock()

    def compute_loss(model: nn.Module, batch: Any) -> Tensor:
        clock.now += CHECK_SECONDS * len(batch[0]) / 16
        return classified(reduction="sum")(model, batch)

    result = check(task(compute_loss), 0, clock)
    assert "is off by 50%" in str(result.why_not)
    assert clock.now < 100 + 2 * CHECK_SECONDS


def test_slow_reading_is_cut_short() -> None:
    clock = Clock()

    class Slow(Dataset[Any]):
        reads = 0

        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> Any:
            type(self).reads += 1
            clock.now += 0.2
            return torch.randn(WIDTH), index % CLASSES

    assert check(task(classified(reduction="sum"), dataset=Slow()), 0, clock).why_not is not None
    assert Slow.reads == 4
