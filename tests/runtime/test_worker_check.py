"""What speaks against reading a dataset in loader workers, and what does not."""

from __future__ import annotations

import functools
import io
import itertools
import logging
import mmap
import multiprocessing
import os
import random
import sqlite3
import tempfile
import threading
import time
import types
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from autotune.runtime.loader import workers
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
    get_worker_info,
)

from autotune.runtime import worker_dry_run
from autotune.runtime.session import Session

from .records import quiet

SHARED: dict[int, float] = {}
RANDOM = numpy.random.default_rng(3)
READS = 0
GRACE_SECONDS = 20.0
LOG = logging.getLogger(__name__)
Read = Callable[[int], Any]


class Reads(Dataset[Any]):
    """Twenty samples by a function; ``held`` is whatever the dataset keeps."""

    def __init__(self, read: Read = float, **held: Any) -> None:
        self.read = read
        vars(self).update(held)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return self.read(index)


class Noise(Reads):
    """Draws from a generator of its own."""

    random: Any

    def __getitem__(self, index: int) -> float:
        draw = getattr(self.random, "random", None) or self.random.rand
        return index + float(draw())


class Draws(Reads):
    """Draws from PyTorch's generator."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(2, generator=self.generator)

    generator: torch.Generator | None = None


class Held(Reads):
    """Goes through a method of what it holds."""

    held: Any

    def __getitem__(self, index: int) -> Any:
        self.held.append(index)
        return index


class Transformed(Reads):
    """A transform object."""

    def __init__(self, transform: Callable[[int], Any]) -> None:
        super().__init__()
        self.transform = transform

    def __getitem__(self, index: int) -> Any:
        return self.transform(index)


class Counts:
    """A transform, or a collate function, that counts its calls."""

    def __init__(self) -> None:
        self.inner = types.SimpleNamespace(calls=0)

    def __call__(self, value: Any) -> Any:
        self.inner.calls += 1
        return default_collate(value) if isinstance(value, list) else value


class Slots:
    """State without a dictionary."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, value: int) -> int:
        self.calls += 1
        return value


class Kept(Reads):
    """Draws a sample once and keeps it in the class."""

    drawn: dict[int, torch.Tensor] = {}  # noqa: RUF012

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.drawn:
            self.drawn[index] = torch.rand(1)
        return self.drawn[index]


class Batched(Reads):
    """Reads batches; only so it keeps something."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        vars(self)["reads"].extend(indices)
        return indices


class Once(Reads):
    """Fills a table of a library's object when it is first read."""

    def __getitem__(self, index: int) -> int:
        table = self.table = getattr(self, "table", None) or types.SimpleNamespace()
        vars(table).setdefault("filled", list(range(20)))
        return int(table.filled[index])


def shared(index: int) -> float:
    SHARED[index] = 1.0
    return float(index)


def drawn(index: int) -> float:
    return float(RANDOM.random())


def counted(index: int) -> int:
    global READS
    READS += 1
    return index


@functools.lru_cache(maxsize=4)
def cached(index: int) -> int:
    return index


@functools.cache
def table() -> list[int]:
    return list(range(20))


def looked_up(index: int) -> int:
    return table()[index]


def closure() -> Read:
    calls = [0]

    def read(index: int) -> int:
        calls[0] += 1
        return index

    return read


def default(index: int, calls: list[int] = []) -> int:  # noqa: B006
    calls.append(index)
    return index


def writes(index: int) -> int:
    Path(tempfile.gettempdir(), f"never-written-{os.getpid()}").write_text("x")
    return index


def forks(index: int) -> int:
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    return index


def hangs(index: int) -> int:
    time.sleep(60)
    return index


def dies(index: int) -> int:
    os._exit(3)


def logged(index: int) -> int:
    LOG.info("reading %d", index)
    return index


def mapped() -> Read:
    pages = mmap.mmap(-1, 100)
    return lambda index: pages.read_byte()


def latents() -> Reads:
    rows = nn.Parameter(torch.zeros(20, 2))
    return Reads(rows.__getitem__, rows=rows)


def items() -> Reads:
    kept = [{"h": torch.zeros(2)} for _ in range(20)]
    return Reads(kept.__getitem__, kept=kept)


def rows() -> Reads:
    kept = torch.arange(40.0).view(20, 2)
    return Reads(kept.__getitem__)


def model() -> Reads:
    norm = nn.BatchNorm1d(1)

    def read(index: int) -> torch.Tensor:
        with torch.no_grad():
            return norm(torch.randn(3, 1))

    return Reads(read)


def reason(dataset: Any, **options: Any) -> str | None:
    options = {"batch_size": 4, "shuffle": True} | options
    return workers(DataLoader(dataset, **options), 2).why_not_more


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Noise(random=numpy.random.RandomState(0)), "Noise.random changes"),
        (lambda: Noise(random=numpy.random.default_rng(0)), "Noise.random"),
        (lambda: Noise(random=random.Random(0)), "Noise.random changes"),
        (lambda: Draws(generator=torch.Generator()), "Draws.generator changes"),
        (lambda: Reads(drawn), "RANDOM"),
        (lambda: Reads(numpy.random.RandomState(0).normal), "changes"),
        (lambda: Reads(shared), "SHARED changes"),
        (lambda: Reads(counted), "changes"),
        (lambda: Reads(cached), "changes"),
        (lambda: Reads(closure()), "read.calls changes"),
        (lambda: Reads(default), "defaults[0] changes"),
        (lambda: Held(held=[]), "Held.held changes"),
        (lambda: Held(held=list(range(100_000))), "Held.held changes"),
        (lambda: Transformed(Counts()), "inner.calls changes"),
        (lambda: Transformed(Slots()), "transform.calls changes"),
        (lambda: Transformed(functools.partial(Counts())), "inner.calls changes"),
        (lambda: Subset(Transformed(Counts()), range(6)), "inner.calls changes"),
        (lambda: [Counts()] and Reads(Counts()), "inner.calls changes"),
        (Kept, "Kept.drawn changes"),
        (lambda: Batched(reads=[]), "Batched.reads changes"),
        (model, "changes"),
        (latents, "require gradients"),
        (lambda: Reads(lambda index: lambda: index), "batch"),
        (lambda: Reads(forks), "daemonic"),
        (lambda: Reads(dies), "ends at once"),
        (lambda: Reads(writes), "writes files"),
        (lambda: Reads(lambda index: 1 // 0), "raises ZeroDivisionError"),
        (lambda: TensorDataset(torch.ones(9, 2).share_memory_()), "shared memory"),
        (lambda: Reads(counter=itertools.count()), "Reads.counter is an iterator"),
        (lambda: Subset(Reads(held=[iter(range(9))]), range(4)), "Subset.dataset.held[0] is an iterator"),
        (lambda: Reads(database=sqlite3.connect(":memory:")), "a connection"),
        (lambda: Reads(count=multiprocessing.Value("i")), "shared memory"),
        (lambda: Reads(seen=numpy.frombuffer(multiprocessing.RawArray("d", 9))), "shared memory"),
        (lambda: Reads(mapped()), "changes"),
    ],
)
def test_what_is_kept_in_the_process_stays_there(make: Callable[[], Any], words: str) -> None:
    assert words in (reason(make(), collate_fn=list if "batch" in words else None) or "None")


@pytest.mark.parametrize(
    "make",
    [
        Reads,
        Draws,
        rows,
        lambda: TensorDataset(torch.ones(9, 2), torch.ones(9)),
        lambda: Reads(numpy.random.normal),
        lambda: Reads(lambda index: random.random() + numpy.random.rand() + float(torch.rand(1))),
        lambda: Reads(logged, logger=LOG),
        lambda: Reads(looked_up),
        lambda: Reads(held=io.BytesIO(b"x"), pool=ThreadPoolExecutor(1), lock=threading.Lock()),
        lambda: Reads(numpy.arange(10.0**6).__getitem__),
        lambda: [1, 2, 3],
        list,
    ],
)
def test_what_reads_the_same_everywhere_gets_workers(make: Callable[[], Any]) -> None:
    dataset = make()
    options = {} if len(dataset) else {"shuffle": False}
    assert reason(dataset, **options) is None


def test_a_collate_function_may_count_too() -> None:
    assert "collate_fn.inner.calls changes" in (reason(Reads(), collate_fn=Counts()) or "")


@pytest.mark.parametrize(("make", "kept"), [(items, True), (rows, True), (lambda: Reads(lambda i: {"x": i}), False)])
def test_batches_of_the_datasets_own_objects_stay(make: Callable[[], Any], kept: bool) -> None:
    assert ("objects of the dataset itself" in (reason(make(), collate_fn=list) or "")) is kept


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Open files of several kinds."""
    path = tmp_path / "data"
    path.write_bytes(bytes(range(200)))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(path, "data")
    with path.open("rb") as file, zipfile.ZipFile(tmp_path / "all.zip") as packed, path.open() as text:
        yield {"file": file, "zip": packed, "text": text, "descriptor": file.fileno()}


@pytest.mark.parametrize("name", ["file", "zip", "text"])
def test_open_files_are_not_shared(opened: dict[str, Any], name: str) -> None:
    assert "open file" in (reason(Reads(held=[opened[name]])) or "")


def test_a_descriptor_that_moves_is_found_and_put_back(opened: dict[str, Any]) -> None:
    descriptor = opened["descriptor"]
    assert "opened before" in (reason(Reads(lambda index: os.read(descriptor, 3)[0])) or "")
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 0


def test_threads_and_held_locks_stay() -> None:
    lock, done = threading.Lock(), threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert "running thread" in (reason(Reads(pool=pool)) or "")
    assert "running thread" in (reason(Reads(held=(thread,))) or "")
    done.set()
    thread.join()
    assert reason(Reads(held=(thread,))) is None
    with lock:
        assert "lock that is held" in (reason(Reads(held={"lock": lock})) or "")


def test_a_read_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_dry_run, "PATIENCE", 0.3)
    assert "no sample within 0.3 seconds" in (reason(Reads(hangs)) or "")
    for process in multiprocessing.active_children():  # told to end
        process.join(GRACE_SECONDS)
        assert not process.is_alive()


def test_a_try_leaves_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    def read(index: int) -> float:
        print("reading", index)
        os.write(2, b"reading")
        return random.random() + float(torch.rand(1))

    before = random.getstate(), torch.get_rng_state().tolist(), sorted(os.listdir("/dev/fd"))
    assert reason(Reads(read)) is None
    assert (random.getstate(), torch.get_rng_state().tolist(), sorted(os.listdir("/dev/fd"))) == before
    assert capfd.readouterr() == ("", "")


def test_only_samples_that_the_sampler_asks_for_are_read() -> None:
    read = {3: 1.0, 4: 2.0, 9: 3.0}.__getitem__
    assert reason(Reads(read), shuffle=False, sampler=SubsetRandomSampler([3, 9, 4])) is None
    assert "KeyError" in (reason(Reads(read)) or "")


def test_samples_come_from_the_batch_sampler() -> None:
    batches = BatchSampler(SubsetRandomSampler([3, 9, 4]), 2, False)
    read = {3: 1.0, 4: 2.0, 9: 3.0}.__getitem__
    assert workers(DataLoader(Reads(read), batch_sampler=batches), 2).why_not_more is None


def test_one_look_for_each_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    monkeypatch.setattr("autotune.runtime.loader.why_not_in_workers", looks.append)
    with Session(quiet(batch_size=2, num_workers=2), device="cpu") as session:
        session.prepare(DataLoader(Reads(), batch_size=2), DataLoader(Reads(), num_workers=2))
    assert len(looks) == 1


def test_a_dataset_that_cannot_be_looked_at_is_read_here() -> None:
    class Odd(Dataset[int]):
        def __getattribute__(self, name: str) -> Any:
            if name == "__dict__":
                raise RuntimeError("nobody looks at me")
            return super().__getattribute__(name)

    refused = workers(DataLoader(Odd(), sampler=SubsetRandomSampler([1])), 2).why_not_more
    assert refused == "kept at 0: the dataset cannot be looked at: RuntimeError: nobody looks at me"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_would_run_the_script_again_are_not_added(method: str) -> None:
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method(method, force=True)
    try:
        assert f"started by {method!r}" in (reason(Reads()) or "")
        assert workers(DataLoader(Reads(), num_workers=1), 2).count == 2
    finally:
        multiprocessing.set_start_method(before, force=True)


def test_the_start_method_stays_to_be_chosen() -> None:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(None, force=True)
    try:
        assert reason(Reads()) is None
        assert multiprocessing.get_start_method(allow_none=True) is None
    finally:
        multiprocessing.set_start_method(before, force=True)


def test_a_daemonic_process_starts_no_workers() -> None:
    receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=lambda: sender.send(reason(Reads())), daemon=True)
    process.start()
    assert "daemonic" in receiver.recv()
    process.join()


class Informed(Reads):
    """Reads by its worker."""

    def __getitem__(self, index: int) -> int:
        return self._worker()

    def _worker(self) -> int:
        information = get_worker_info()
        return information.id if information else -1


@pytest.mark.parametrize(("own", "wanted", "used"), [(2, 0, 2), (0, 2, 0), (2, 1, 1)])
def test_who_asks_for_its_worker_keeps_it(own: int, wanted: int, used: int) -> None:
    found = workers(DataLoader(Informed(), num_workers=own), wanted)
    assert found.count == used
    assert (found.why_not_more is None) is (wanted == used)


def test_the_reason_is_told() -> None:
    with Session(quiet(batch_size=2, num_workers=2), device="cpu") as session:
        loader = session.prepare(DataLoader(Transformed(Counts()), batch_size=2))
        assert loader.num_workers == 0
        assert dict(session.not_applied)["num_workers"].startswith("kept at 0: Transformed.transform.inner.calls")


def test_a_tuned_start_method_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "forkserver")
    loader = DataLoader(list(range(8)), batch_size=2)
    assert "forkserver" in (workers(loader, 2).why_not_more or "")
    assert workers(loader, 2, "fork").count == 2


def test_a_log_that_others_write_to_is_no_file_that_samples_read(tmp_path: Path) -> None:
    """Ranks under torchrun share one log. Its end moves meanwhile, and must never be moved back."""
    (tmp_path / "data").write_bytes(b"0123")
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    data = os.open(tmp_path / "data", os.O_RDONLY)
    try:
        watch = worker_dry_run._Watch()
        os.write(log, b"epoch 1")
        assert watch.put_back() is None
        assert os.lseek(log, 0, os.SEEK_CUR) == len(b"epoch 1")
        os.read(data, 2)
        assert watch.put_back() == "reading uses a file that was opened before, which workers would share"
        assert os.lseek(data, 0, os.SEEK_CUR) == 0
    finally:
        os.close(log)
        os.close(data)
