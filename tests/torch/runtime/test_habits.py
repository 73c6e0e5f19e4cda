"""Habits of training scripts that are easily broken from outside. Each one trains as in plain PyTorch, is left alone,
or differs in the first steps, so that tuning leaves the knob out.

What compilers and exporters see stands in `test_compilers`, what several processes do in `tests/processes/runtime`.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import io
import itertools
import logging
import os
import random
import socket
import sqlite3
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    get_worker_info,
)

from autotune.runtime.fingerprints import digest
from autotune.runtime.loaders import PERSISTENT
from autotune.runtime.session import Session
from autotune.trial.child.first_steps import SHARED, Recorder, Recording, differences
from tests.torch.records import dataset, prepared, quiet, workers_of

Prepare = Callable[..., Any]
Loop = Callable[[Prepare], Any]

SETTINGS: dict[str, dict[str, Any]] = {
    "workers": {"num_workers": 1},
    "ahead": {"num_workers": 1, "prefetch_factor": 4},
    "no workers": {"num_workers": 0},
    "layout": {"channels_last": True},
    "fused": {"optimizer_impl": "fused"},
    "compile": {"compile": "default"},
    "bf16": {"precision": "bf16"},
}
TOLERANCES = {"fused": 1e-4, "compile": 1e-6, "bf16": 0.05}
"""Relative; other settings change no bit."""
HABITS: list[Any] = []


def habit(*names: str) -> Callable[[Loop], Loop]:
    """Register a loop with the settings under which it must train as it does plainly."""

    def register(loop: Loop) -> Loop:
        HABITS.extend(pytest.param(loop, name, id=f"{loop.__name__}, {name}") for name in names)
        return loop

    return register


def result_of(loop: Loop, prepare: Prepare) -> list[Any]:
    """Return what ``loop`` makes, and where random numbers stand."""
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(0)
    return [loop(prepare), torch.get_rng_state(), random.random(), numpy.random.rand()]


@pytest.mark.parametrize(("loop", "name"), HABITS)
def test_a_habit_trains_as_in_plain_pytorch(loop: Loop, name: str) -> None:
    expected = result_of(loop, lambda *_objects: None)
    with Session(quiet(**SETTINGS[name]), device="cpu", knobs=SETTINGS[name]) as session:
        found = result_of(loop, session.prepare)
    compare(found, expected, TOLERANCES.get(name, 0.0))


def compare(found: Any, expected: Any, tolerance: float) -> None:
    """Raise `AssertionError` unless all numbers are near and all else is equal."""
    assert type(found) is type(expected)
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            compare(one, other, tolerance)
    elif isinstance(expected, Tensor | numpy.ndarray | float):
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance / 10)
    else:
        assert found == expected


def fit(prepare: Prepare, model: nn.Module, loader: Any, optimizer: Any = None, epochs: int = 2) -> list[Any]:
    """Train plainly. Returns losses and weights."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    prepare(model, optimizer, loader)
    losses = []
    for _ in range(epochs):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return [losses, list(model.state_dict().values())]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def images() -> DataLoader[Any]:
    inputs = torch.rand(12, 3, 6, 6)
    return DataLoader(TensorDataset(inputs, inputs.mean((1, 2, 3)).unsqueeze(1)), batch_size=4, shuffle=True)


# Models ---------------------------------------------------------------------------------------------------------------


def cloned(module: nn.Module) -> nn.Module:
    """Return a copy whose parameters are functions of the module's, as meta learning makes it."""
    clone = module.__new__(type(module))
    clone.__dict__ = module.__dict__.copy()
    clone._parameters = {name: p.clone() if p is not None else None for name, p in module._parameters.items()}
    clone._buffers = {name: b.clone() if b is not None else None for name, b in module._buffers.items()}
    clone._modules = {name: cloned(child) for name, child in module._modules.items() if child is not None}
    return clone


@habit("compile", "bf16")
def a_clone_by_dictionary_takes_inner_steps(prepare: Prepare) -> list[float]:
    model, (inputs, targets) = small(), dataset(16)[:]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepare(model, optimizer)
    losses = []
    for _ in range(3):
        learner = cloned(model)
        inner = nn.functional.mse_loss(learner(inputs), targets)
        grads = torch.autograd.grad(inner, list(learner.parameters()), create_graph=True)
        with torch.no_grad():
            for parameter, gradient in zip(learner.parameters(), grads, strict=True):
                parameter.sub_(gradient)
        outer = nn.functional.mse_loss(learner(inputs), targets)
        losses += [inner.item(), outer.item()]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return losses


class Normalises(nn.Module):
    """Changes its input in place, draws from all random numbers, and counts: a second forward pass would show."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.drop, self.head = nn.Conv2d(3, 4, 3), nn.Dropout(0.5), nn.Linear(4 * 16, 1)
        self.calls, self.noise = 0, torch.Generator().manual_seed(1)
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x.sub_(0.5).mul_(2.0 + 0.01 * self.calls)
        self.seen += [random.random(), float(numpy.random.rand())]
        hidden = self.conv(x).flatten(1) + torch.randn((), generator=self.noise)
        return self.head(self.drop(hidden))


@habit("compile", "fused")
def forward_changes_its_input_and_draws(prepare: Prepare) -> list[Any]:
    model = Normalises()
    return [fit(prepare, model, images()), model.calls, model.seen]


@habit("compile", "bf16")
def a_hook_is_registered_after_the_first_call(prepare: Prepare) -> list[Any]:
    model, seen = small(), list[float]()
    prepare(model)
    results = []
    for number in range(4):
        if number == 2:
            model[0].register_forward_hook(lambda _m, _i, output: seen.append(output.float().sum().item()))
            model.register_forward_pre_hook(lambda _m, inputs: (inputs[0] * 2,))
        results.append(model(torch.ones(2, 8)).sum())
    return [results, seen]


@habit("fused")
def state_dicts_are_edited_in_place(prepare: Prepare) -> list[Any]:
    model = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    prepare(model, optimizer)
    for _ in range(2):
        model(torch.rand(1, 3, 4, 4)).sum().backward()
        optimizer.step()
        for value in model.state_dict().values():
            value.mul_(0.5)
        for state in optimizer.state_dict()["state"].values():
            state["momentum_buffer"].zero_()
    return [list(model.parameters()), [s["momentum_buffer"] for s in optimizer.state.values()]]


@dataclasses.dataclass
class Answer:
    """What a model gives back."""

    best: Tensor
    kept: list[Tensor]


class Pair(collections.namedtuple("Pair", "left right")):
    """A named tuple that is built otherwise."""

    __slots__ = ()

    def __new__(cls, both: Tensor) -> Pair:
        return super().__new__(cls, both[:1], both[1:])


class Answers(nn.Module):
    """Gives its outputs in containers of many kinds, among them one of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.names = nn.Linear(8, 2), ["left", "right"]

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.layer(x)
        plain = types.SimpleNamespace(y=y)
        return {
            "dataclass": Answer(y, [y]),
            "object": plain,
            "max": torch.max(y, dim=1),
            "pair": Pair(y),
            "names": self.names,
            "fixed": types.MappingProxyType({"y": y.float()}),
            "default": collections.defaultdict(list, y=y),
        }


@habit("bf16", "compile")
def outputs_come_in_containers_of_any_kind(prepare: Prepare) -> list[Any]:
    model = Answers()
    prepare(model)
    found = model(torch.ones(2, 8))
    parts = [found["dataclass"].best, found["dataclass"].kept[0], found["object"].y, found["max"].values]
    parts += [found["pair"].left, found["pair"].right, found["fixed"]["y"], found["default"]["y"]]
    kinds = [type(value).__name__ for value in found.values()]
    return [kinds, [part.detach().numpy() for part in parts], found["names"] is model.names]


@habit("bf16", "compile")
def the_script_switches_autocast_off_or_chooses_its_type(prepare: Prepare) -> list[Any]:
    model, seen = small(), list[str]()
    model[0].register_forward_hook(lambda _m, _i, output: seen.append(str(output.dtype)))
    prepare(model)
    with torch.autocast("cpu", enabled=False):
        outputs = model(torch.ones(2, 8))
    with torch.autocast("cpu", dtype=torch.float16):
        own = model(torch.ones(2, 8))
    return [outputs, str(outputs.dtype), own, str(own.dtype), seen]


# Optimizers -----------------------------------------------------------------------------------------------------------


class Lookahead(torch.optim.Optimizer):
    """A wrapper that is an optimizer in name only."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)


@habit("fused", "bf16")
def a_wrapper_is_an_optimizer_in_name_only(prepare: Prepare) -> list[Any]:
    model = small()
    optimizer = Lookahead(torch.optim.Adam(model.parameters(), lr=0.01))
    return fit(prepare, model, DataLoader(dataset(12), batch_size=4), optimizer)


# Loaders --------------------------------------------------------------------------------------------------------------


class Numbers(Dataset[Any]):
    """0 to 7, and the process that reads them."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, os.getpid()


@habit("workers")
def the_collate_function_changes_between_epochs(prepare: Prepare) -> list[Any]:
    loader = DataLoader(list(range(8)), batch_size=4)
    prepare(loader)
    first = list(loader)
    loader.collate_fn = sum
    return [first, list(loader)]


@habit("ahead")
def persistent_workers_are_started_again(prepare: Prepare) -> list[Any]:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    prepare(loader)
    epochs = [list(loader), list(loader)]
    loader._iterator = None
    epochs.append(list(loader))
    pids = [int(epoch[0][1][0]) for epoch in epochs]
    loader._iterator = None
    return [[numbers for epoch in epochs for numbers, _ in epoch], pids[0] == pids[1], pids[1] == pids[2]]


@habit("ahead")
def workers_are_shut_down_by_hand(prepare: Prepare) -> list[Any]:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    prepare(loader)
    iterator = iter(loader)
    first = next(iterator)[0]
    own = loader._iterator is iterator
    iterator._shutdown_workers()  # type: ignore[attr-defined]
    return [first, own, isinstance(loader, DataLoader), type(loader).__name__, type(iterator).__name__]


def test_a_writable_memory_map_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    mapped = numpy.memmap(path, dtype="float32", mode="w+", shape=(8, 2))
    mapped[:] = 1.0
    mapped.flush()
    before = path.read_bytes(), path.stat().st_mtime_ns
    opened = numpy.memmap(path, dtype="float32", mode="r+", shape=(8, 2))
    with Session(quiet(num_workers=1), device="cpu") as session:
        session.prepare(DataLoader(opened, batch_size=2))  # type: ignore[arg-type]
        digest(opened)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


# Left alone -----------------------------------------------------------------------------------------------------------


class OwnLoader(DataLoader[Any]):
    """A user's subclass that iterates in its own way."""

    def __iter__(self) -> Any:
        return super().__iter__()


def started() -> DataLoader[Any]:
    loader = DataLoader(list(range(4)), num_workers=1, persistent_workers=True)
    next(iter(loader))
    return loader


def compiled() -> nn.Module:
    model = small()
    model.compile(backend="eager")
    return model


class Opened(Numbers):
    """Holds a file from its start."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self.file = file

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, int(self.file is None)


def test_an_opened_file_is_no_other_data() -> None:
    with open(os.devnull, "rb") as file:
        assert digest(Opened(file)) == digest(Opened(None)) == digest(Numbers())


def test_what_a_module_holds_is_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest([tempfile, 1])
    monkeypatch.setattr(tempfile, "tempdir", "another")
    assert digest([tempfile, 1]) == before != digest([tempfile, 2])


def locked() -> Dataset[Any]:
    """Open a database amid a transaction: it holds locks, which belong to one process."""
    database = sqlite3.connect(os.path.join(tempfile.mkdtemp(), "data.sqlite"))
    database.execute("create table samples (number)")
    database.execute("begin immediate")
    return Opened(database)


DRAWING = {"draws": numpy.random.default_rng(1), "__getitem__": lambda own, _index: own.draws.random()}
LEFT_ALONE: dict[str, tuple[str, Callable[[], Any], str]] = {
    "TorchScript of images": ("layout", lambda: torch.jit.script(nn.Conv2d(3, 4, 3)), "compiles its model itself"),
    "own compile": ("compile", compiled, "compiles its model itself"),
    "TorchScript": ("compile", lambda: torch.jit.script(small()), "compiles its model itself"),
    "own loader": ("workers", lambda: OwnLoader(Numbers()), "OwnLoader iterates in its own way"),
    "running workers": ("ahead", started, "its workers run already"),
    "socket": ("workers", lambda: DataLoader(Opened([{"server": socket.socket()}])), "holds an open socket"),
    "own random numbers": ("workers", lambda: DataLoader(Opened([random.Random(1)])), "random numbers of its own"),
    "own generator": ("workers", lambda: DataLoader(Opened(numpy.random.default_rng(1))), "random numbers of its own"),
    "class's generator": ("workers", lambda: DataLoader(type("D", (Numbers,), DRAWING)()), "random numbers of its own"),
    "log": ("workers", lambda: DataLoader(Opened(open(os.devnull, "w"))), "a file that it may write to"),  # noqa: SIM115
    "lock": ("workers", lambda: DataLoader(locked()), "a lock on a file"),
    "persistent workers": (
        "no workers",
        lambda: DataLoader(Numbers(), num_workers=1, persistent_workers=True),
        PERSISTENT,
    ),
    "spawned workers": ("workers", lambda: DataLoader(Numbers()), "would run the script's top level again"),
}


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
@pytest.mark.parametrize(("name", "make", "words"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_could_differ_after_the_first_steps_is_left_alone(name, make, words, monkeypatch) -> None:
    if "top level" in words:
        monkeypatch.setattr("multiprocessing.get_start_method", lambda **_: "spawn")
    item, (*_, knob) = make(), SETTINGS[name]
    before, kind = dict(vars(item)), type(item)
    owned = item.parameters() if hasattr(item, "parameters") else ()
    tensors = [(p, p.data_ptr()) for p in owned if not nn.parameter.is_lazy(p)]
    with Session(quiet(**SETTINGS[name]), device="cpu") as session:
        assert session.prepare(item) is item
        assert words in dict(session.not_applied)[knob]
        assert (vars(item), type(item)) == (before, kind)
        assert all(tensor.data_ptr() == place for tensor, place in tensors)


# Seen in the first steps ----------------------------------------------------------------------------------------------


class Read(Dataset[Any]):
    """Samples whose reading does something beside."""

    reads = 0

    def __init__(self, does: Callable[[Read, int], Any]) -> None:
        self.data, self.does = torch.arange(8.0).view(8, 1), does
        self.rows = sqlite3.connect(":memory:")
        self.rows.execute("create table seen (number)")
        self.calls, self.offset, self.cache = 0, 0, dict[int, Tensor]()
        self.nothing = object()
        self.file: Any = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return self.does(self, index)

    def close(self) -> None:
        self.file.close()


def counts(own: Read, index: int) -> Any:
    own.calls += 1
    return own.data[index] * own.calls


def counts_in_its_class(own: Read, index: int) -> Any:
    type(own).reads += 1
    return own.data[index]


def opens(own: Read, index: int) -> Any:
    own.file = own.file or io.BytesIO()
    return own.data[index] * 2


def beside(act: Callable[[Read, int], Any]) -> Callable[[Read, int], Any]:
    """Return a reading that does ``act`` first."""
    return lambda own, index: (act(own, index), own.data[index])[1]


SEEN_SAMPLES = collections.Counter[int]()
cached = functools.lru_cache(maxsize=4)(torch.full)
DOES: dict[str, Callable[[Read, int], Any]] = {
    "counts": counts,
    "asks for its worker": lambda own, index: own.data[index] + 10 * getattr(get_worker_info(), "num_workers", 0),
    "in place": lambda own, index: own.data[index].mul_(0.5),
    "caches": lambda own, index: own.cache.setdefault(index, own.data[index] + 1),
    "seeds": beside(lambda _own, index: torch.manual_seed(index)),
    "counts in a global": beside(lambda _own, index: SEEN_SAMPLES.update([index])),
    "counts in its class": counts_in_its_class,
    "counts in a cache": beside(lambda _own, index: cached((), index)),
    "writes rows": beside(lambda own, index: own.rows.execute("insert into seen values (?)", (index,))),
    "logs": beside(lambda _own, index: logging.getLogger("script").warning("sample %d", index)),
    "marks": lambda own, index: (own.data[index], own.nothing),
    "opens": opens,
    "begins by number": lambda own, index: own.data[index] + own.offset,
    "shuffles at its end": beside(lambda own, index: vars(own).update(calls=own.calls + (index == len(own) - 1))),
    "only reads": lambda own, index: own.data[index] * 2,
    "hands out": lambda own, index: own.data[index],
}


def by_number(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.offset = 100 * (worker + 1)  # type: ignore[attr-defined]


def first_steps(does: str, own: int, wanted: int, *, written: bool = False, batches: int = 8) -> Recording:
    """Record ``batches`` of a loader, four an epoch, with ``own`` workers under settings with as many as ``wanted``."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"collate_fn": list} if does == "marks" or written else {}
    options |= {"worker_init_fn": by_number} if does == "begins by number" else {}
    loader = DataLoader(Read(DOES[does]), batch_size=2, num_workers=own, **options)
    with prepared(loader, num_workers=wanted):
        assert workers_of(loader) == wanted
        with Recorder(list, list, lambda: [loader]) as recorder:
            for batch in itertools.islice(itertools.chain(loader, loader), batches):
                recorder.takes(batch)
                if written:
                    batch[0].add_(1)
            return recorder.finish()


SEEN = [
    *((does, own, 1 - own) for does in ("in place", "counts", "caches", "seeds") for own in (0, 1)),
    *((does, 0, 1) for does in DOES if does.startswith(("counts in ", "writes ", "asks", "logs", "marks", "opens"))),
    *((does, 1, 2) for does in ("counts", "asks for its worker", "begins by number")),
]


@pytest.mark.parametrize(("does", "own", "wanted"), SEEN)
def test_a_data_set_that_does_more_than_read_is_seen(does: str, own: int, wanted: int) -> None:
    theirs, ours = first_steps(does, own, own), first_steps(does, own, wanted)
    assert differences(theirs, ours, quiet(num_workers=own), quiet(num_workers=wanted))


@pytest.mark.parametrize(("norm", "differs"), [(1.002, False), (1.01, True)])
def test_one_unit_behind_a_kink_is_no_difference(norm: float, differs: bool) -> None:
    own, repeated = (Recording(losses=[loss, 1.0], norms=[[1.0], [1.0]]) for loss in (1.0, 1.0 + 1e-7))
    ours = Recording(losses=[1.0, 1.0], norms=[[1.0], [norm]])
    found = differences(own, ours, quiet(num_workers=0), quiet(num_workers=1), [repeated])
    assert bool(found) == differs


def test_batches_that_are_views_of_the_data_are_seen() -> None:
    theirs, ours = (orders(lambda _own: {"dataset": Rows(), "batch_size": None}, workers, 1)[0] for workers in (0, 1))
    assert differences(theirs, ours, quiet(num_workers=0), quiet(num_workers=1)) == [("batches", SHARED)]


def test_the_end_of_a_pass_is_looked_at_before_it_is_reached() -> None:
    theirs, ours = (first_steps("shuffles at its end", 0, wanted, batches=2) for wanted in (0, 1))
    assert differences(theirs, ours, quiet(num_workers=0), quiet(num_workers=1))


class Rows(Dataset[Any]):
    """Views of one tensor."""

    def __init__(self) -> None:
        self.data = torch.rand(4, 3)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.data[index]


def test_a_loop_that_writes_into_its_batches_is_seen() -> None:
    theirs, ours = (first_steps("hands out", 0, wanted, written=True) for wanted in (0, 1))
    assert differences(theirs, ours, quiet(num_workers=0), quiet(num_workers=1))


@pytest.mark.parametrize(("own", "wanted"), [(0, 1), (1, 0), (1, 2)])
def test_a_data_set_that_only_reads_is_the_same(own: int, wanted: int) -> None:
    theirs, ours = first_steps("only reads", own, own), first_steps("only reads", own, wanted)
    assert differences(theirs, ours, quiet(num_workers=own), quiet(num_workers=wanted)) == []


class Lazily(Sampler[int]):
    """Draws each index when it is asked for."""

    def __init__(self) -> None:
        self.numbers = random.Random(1)

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[int]:
        for _ in range(8):
            yield self.numbers.randrange(8)


class ByLength(Sampler[list[int]]):
    """Batches that are made when a pass begins."""

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(8).tolist()
        yield from (sorted(order[first : first + 2]) for first in range(0, 8, 2))


class Streamed(IterableDataset[int]):
    """Numbers; those of the next pass follow on if it ``goes_on``."""

    def __init__(self, *, goes_on: bool = False) -> None:
        self.goes_on, self.first = goes_on, 0

    def __iter__(self) -> Iterator[int]:
        first = self.first
        self.first += 8 * self.goes_on
        yield from range(first, first + 8)


class Counting(IterableDataset[int]):
    """Counts in a global what it reads."""

    def __iter__(self) -> Iterator[int]:
        for number in range(8):
            SEEN_SAMPLES[number] += 1
            yield number


class Once(Sampler[int]):
    """An order behind an object that can be read once only."""

    def __init__(self) -> None:
        self.numbers = iter(range(64))

    def __iter__(self) -> Iterator[int]:
        return self.numbers


class Onward(IterableDataset[int]):
    """Reads on where the pass before was left, or ended."""

    def __init__(self, length: int) -> None:
        self.numbers, self.length, self.parts = iter(range(64)), length, 0

    def __iter__(self) -> Iterator[int]:
        for number in self.numbers if not self.length else range(self.length):
            yield number + self.parts
        self.parts += 1


def replaced(generator: torch.Generator | None) -> RandomSampler:
    return RandomSampler(range(8), replacement=True, num_samples=128, generator=generator)  # 32 at a time


EIGHT = list(range(8))
ORDERS: dict[str, tuple[Callable[[torch.Generator], Any], bool]] = {
    "own generator": (lambda own: {"dataset": EIGHT, "batch_size": 2, "shuffle": True, "generator": own}, True),
    "subset": (lambda _own: {"dataset": EIGHT, "sampler": SubsetRandomSampler(range(8))}, True),
    "own batches": (lambda _own: {"dataset": EIGHT, "batch_sampler": ByLength()}, True),
    "no batches": (lambda own: {"dataset": EIGHT, "batch_size": None, "shuffle": True, "generator": own}, True),
    "stream": (lambda _own: {"dataset": Streamed(), "batch_size": 2}, True),
    "drawn on the way": (lambda own: {"dataset": EIGHT, "batch_size": 16, "sampler": replaced(own)}, False),
    "own numbers": (lambda _own: {"dataset": EIGHT, "sampler": Lazily()}, False),
    "order of an iterator": (lambda _own: {"dataset": list(range(64)), "sampler": Once(), "batch_size": 2}, False),
    "stream that counts": (lambda _own: {"dataset": Counting(), "batch_size": 2}, False),
    "stream of an iterator": (lambda _own: {"dataset": Onward(0), "batch_size": 2}, False),
    "stream of parts": (lambda _own: {"dataset": Onward(40), "batch_size": 2}, False),
    "stream that goes on": (lambda _own: {"dataset": Streamed(goes_on=True), "batch_size": 2}, False),
}


def orders(make: Callable[[torch.Generator], Any], workers: int, passes: int) -> tuple[Recording, list[Any]]:
    """Record passes of which each stops at its fourth batch, while the loop draws from the generator, too."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(**make(generator))
    seen = []
    with prepared(loader, num_workers=workers):
        assert workers_of(loader) == workers
        with Recorder(list, list, lambda: [loader]) as recorder:
            for _ in range(passes):
                for _number, batch in zip(range(4), loader, strict=False):
                    recorder.takes(batch)
                    seen.append((batch, torch.rand(2, generator=generator), torch.rand(2)))
            return recorder.finish(), seen


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize(("make", "same"), ORDERS.values(), ids=ORDERS)
def test_an_order_is_kept_or_seen_to_differ(make: Callable[[torch.Generator], Any], same: bool, passes: int) -> None:
    (theirs, batches), (ours, others) = (orders(make, workers, passes) for workers in (0, 1))
    found = differences(theirs, ours, quiet(num_workers=0), quiet(num_workers=1))
    assert (found == []) == same, found
    assert (digest(batches) == digest(others)) >= same


# Data of several processes --------------------------------------------------------------------------------------------


class Record:
    """A sample that is an object."""

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize(
    "make",
    [
        lambda order: [{"x": torch.tensor(float(number))} for number in order],
        lambda order: [Record(number) for number in order],
        lambda order: {"rows": numpy.asarray(order)},
        lambda order: torch.utils.data.Subset(dataset(8), order),
    ],
    ids=["dictionaries", "objects", "table", "subset"],
)
def test_data_sets_that_were_split_otherwise_are_not_the_same(make: Callable[[list[int]], Any]) -> None:
    own, other = make([0, 1, 2, 3]), make([0, 1, 3, 2])
    assert digest(own) == digest(make([0, 1, 2, 3])) == digest(copy.deepcopy(own))
    assert digest(own) != digest(other)
