"""Samples with an id each, and batches of every class: the ids tell which data a step saw."""

import functools
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from tests.same_training.models import CLASSES, FEATURES, TOKENS, WORDS
from tests.same_training.optimizers import IGNORED

SHAPES = {
    "image": (2, 4, 4),
    "small image": (2, 2, 2),
    "volume": (1, 3, 3, 3),
    "sequence": (4, 3),
    "tokens": (4,),
    "vector": (FEATURES,),
}
MOST = 64
"""Samples that exist."""


@functools.cache
def table(kind: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets of all samples, the same in every process."""
    random = torch.Generator().manual_seed(11)
    targets = torch.randint(0, CLASSES, (MOST, TOKENS), generator=random)
    targets[::3, 0] = IGNORED
    targets[::5, 1] = IGNORED
    shape = (MOST, *SHAPES[kind])
    if kind == "tokens":
        return torch.randint(0, WORDS, shape, generator=random), targets
    return torch.randn(shape, generator=random), targets


class Samples(Dataset[Any]):
    """``count`` samples; ``epoch`` changes what they hold, as a curriculum or a re-drawn augmentation does."""

    def __init__(self, kind: str, count: int, first: int = 0) -> None:
        self.kind, self.count, self.first, self.epoch = kind, count, first, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        inputs, targets = table(self.kind)
        number = self.first + int(index)
        x = inputs[number] if self.kind == "tokens" else inputs[number] * (1 + 0.5 * self.epoch)
        return {"ids": number, "x": x, "y": targets[number]}


class KeepsState(Samples):
    """Keeps what reading leaves behind: a transform's count, and noise of a generator of its own."""

    def __init__(self, kind: str, count: int) -> None:
        super().__init__(kind, count)
        self.noise, self.reads = random.Random(5), [0]

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.reads[0] += 1
        sample = super().__getitem__(index)
        scale = 1 + 0.01 * self.reads[0] + 0.1 * self.noise.random()
        return sample if self.kind == "tokens" else sample | {"x": sample["x"] * scale}


class OpenFile(Samples):
    """Reads its factors from one open file, which has been read already when workers start."""

    def __init__(self, kind: str, count: int) -> None:
        super().__init__(kind, count)
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  as long as the data set
        self.file.write(bytes(range(100, 100 + count)))
        self.file.seek(0)
        self[0]

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = super().__getitem__(index)
        self.file.seek(index)
        return sample if self.kind == "tokens" else sample | {"x": sample["x"] * (self.file.read(1)[0] / 100)}


class Fails(Samples):
    """Has one sample that cannot be read."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if int(index) == 7:
            raise OSError(5, "this sample is broken", "seven.jpg")
        return super().__getitem__(index)


class OpenedInWorker(Samples):
    """Reads only after its ``worker_init_fn`` has opened it, as a dataset over a file or a database does."""

    opened = False

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not self.opened:
            raise RuntimeError("the dataset is not open: worker_init_fn was not called")
        return super().__getitem__(index)


def open_in_worker(_worker: int) -> None:
    """The user's ``worker_init_fn``."""
    information: Any = get_worker_info()
    information.dataset.opened = True


class Stream(IterableDataset[Any]):
    """The same samples in order, without indices."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self.samples)):
            yield self.samples[number]


class ShardedStream(Stream):
    """Shares its samples out among loader workers."""

    def __iter__(self) -> Iterator[Any]:
        information = get_worker_info()
        first, step = (0, 1) if information is None else (information.id, information.num_workers)
        for number in range(first, len(self.samples), step):
            yield self.samples[number]


class Named(NamedTuple):
    """A batch as a named tuple."""

    ids: Tensor
    x: Any
    y: Tensor


@dataclass
class Record:
    """A batch as a dataclass, without any method."""

    ids: Tensor
    x: Any
    y: Tensor


def collate(style: str, samples: list[dict[str, Any]]) -> Any:
    """A batch of class ``style``."""
    whole = default_collate(samples)
    ids, x, y = whole["ids"], whole["x"], whole["y"]
    if style == "packed":
        pieces = [sample["x"][: 2 + int(sample["ids"]) % 3] for sample in samples]
        return ids, pack_sequence(pieces, enforce_sorted=False), y
    if style == "defaultdict":
        return defaultdict(list, whole)
    return {"dict": whole, "namedtuple": Named(ids, x, y), "dataclass": Record(ids, x, y)}.get(style, (ids, x, y))


def parts(batch: Any) -> tuple[Tensor, Any, Tensor]:
    """Ids, inputs and targets of a batch of any class."""
    if isinstance(batch, dict):
        return batch["ids"], batch["x"], batch["y"]
    if isinstance(batch, Record):
        return batch.ids, batch.x, batch.y
    ids, x, y = batch
    return ids, x, y
