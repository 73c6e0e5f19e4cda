"""Workers that are added read, raise and end as the training process itself does."""

import contextlib
import copy
import itertools
import logging
import multiprocessing
import multiprocessing.util
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, Subset

from autotune.runtime import loader_workers, worker_batches
from autotune.runtime.session import Session
from tests.torch import records
from tests.torch.records import prepared, quiet, workers_of

RECORD = 5_000
STRENGTH = 0
PROGRAM = None
OPTIONS = SimpleNamespace(strength=0, steps=0)
WEIGHTS, LATE = torch.zeros(1), list[int]()
Slotted: Any = type("Slotted", (), {"__slots__": ["strength"]})
LOGGER = logging.getLogger("of a script")


class Samples(Dataset[Any]):
    """``count`` samples that ``read`` reads."""

    strength = 0
    own: ClassVar[dict[str, int]] = {"more": 0}

    def __init__(self, read: Callable[[int], Any], count: int = 8) -> None:
        self.read, self.count = read, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.read(index)

    @staticmethod
    def more() -> int:
        return Samples.own["more"]


class Records(Samples):
    """A file that is opened by the first read, wherever that is."""

    def __init__(self, path: Path, flags: int) -> None:
        super().__init__(self.record, 120)
        self.path, self.flags, self.file = path, flags, -1

    def record(self, index: int) -> Any:
        if self.file < 0:
            self.file = os.open(self.path, self.flags)
            self.path.unlink()  # the name is gone, the data is not
        os.lseek(self.file, index * RECORD, os.SEEK_SET)
        content = b"".join(os.read(self.file, RECORD // 5) for _ in range(5))
        return index, content == bytes([index]) * RECORD


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
def test_workers_read_from_positions_of_their_own(tmp_path: Path, flags: int) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"".join(bytes([number]) * RECORD for number in range(120)))
    records = Records(path, flags)
    loader = DataLoader(records, 4, shuffle=True)
    wrong = 0
    with prepared(loader, num_workers=2) as session:
        assert workers_of(loader) == 2
        for _ in range(8):
            wrong += sum(not records[index][1] for index in range(0, 120, 7))  # the validation, in this process
            wrong += sum(not all(right) for _, right in loader)
        assert session.not_applied == ()
    os.close(records.file)
    assert wrong == 0


def test_a_descriptor_that_is_another_files_by_now_is_left_alone() -> None:
    """A file that is closed while workers start gives its number to one of their pipes."""
    with open(__file__) as file:
        files = loader_workers.open_files()
        number = file.fileno()
    assert number in files
    pipe = os.pipe()
    assert number in pipe
    loader_workers.Start([], alone=False, files={number: files[number]})(0)
    os.write(pipe[1], b"still a pipe")
    assert os.read(pipe[0], 20) == b"still a pipe"
    os.close(pipe[0])
    os.close(pipe[1])


@contextlib.contextmanager
def lock(_samples: Samples, folder: Path) -> Iterator[str]:
    """Hold a lock on a file."""
    fcntl = pytest.importorskip("fcntl")
    with open(folder / "lock", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield loader_workers.LOCKED


@contextlib.contextmanager
def connection(_samples: Samples, _folder: Path) -> Iterator[str]:
    """Hold a pipe in a global of the module of the data set."""
    program = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    globals()["PROGRAM"] = program
    yield "open BufferedWriter, which workers would share"
    program.communicate()
    globals()["PROGRAM"] = None


@contextlib.contextmanager
def handler(_samples: Samples, _folder: Path) -> Iterator[str]:
    """Handle the ends of child processes."""
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    yield loader_workers.HANDLED
    signal.signal(signal.SIGCHLD, before)


@contextlib.contextmanager
def pool(samples: Samples, _folder: Path) -> Iterator[str]:
    """Hold a pool of threads, which a worker does not have."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()
        vars(samples)["pool"] = threads
        yield loader_workers.THREADED


@pytest.mark.parametrize("begin", [lock, connection, handler, pool])
def test_what_forbids_workers_later_is_seen_when_they_start(begin: Any, tmp_path: Path) -> None:
    samples: Any = Samples(lambda _index: os.getpid() + 0 * (PROGRAM is samples.pool))
    samples.pool = 0
    loader = DataLoader(samples, 4)
    with prepared(loader, num_workers=1) as session:
        assert set(torch.cat(list(loader)).tolist()) != {os.getpid()}
        with begin(samples, tmp_path) as reason:
            assert set(torch.cat(list(loader)).tolist()) == {os.getpid()}
        assert dict(session.not_applied)["num_workers"].endswith(reason)


def test_nothing_is_asked_of_what_only_looks_like_a_file() -> None:
    """A server's proxy would send the question, and a library would answer with its own function."""
    asked: list[str] = []

    class Proxy:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    samples = Samples(lambda _index: os.getpid())
    vars(samples)["server"] = Proxy()
    loader = DataLoader(samples, 4)
    with prepared(loader, num_workers=1):
        assert set(torch.cat(list(loader)).tolist()) != {os.getpid()}
    assert "fileno" not in asked


def test_an_order_that_can_be_read_once_only_is_not_read_ahead() -> None:
    loader = DataLoader(Samples(lambda index: index, 40), 2, sampler=iter(range(40)))  # type: ignore[arg-type]
    with prepared(loader, num_workers=1) as session:
        assert [next(iter(loader)).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        assert dict(session.not_applied)["num_workers"].endswith(loader_workers.ONCE)


class Scales:
    """A collate function with a state."""

    def __call__(self, samples: list[Any]) -> Any:
        return torch.stack(samples) * self.scale  # type: ignore[attr-defined]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an attribute": lambda samples: vars(samples.transform).update(strength=2),
    "a tensor": lambda samples: samples.rows[0].add_(1),
    "a list": lambda samples: samples.transform.steps.append(3),
    "an item": lambda samples: samples.labels.__setitem__(37, 1),
    "the last attribute": lambda samples: vars(samples).update(scale=2),
    "the collate object": lambda samples: vars(samples.collate).update(scale=2),
    "a closure": lambda samples: samples.shift(1),
    "an argument": lambda samples: vars(samples.partial.args[0]).update(strength=1),
    "a global": lambda _samples: globals().update(STRENGTH=1),
    "an object that a function reads": lambda _samples: vars(OPTIONS).update(strength=1),
    "a module": lambda _samples: vars(records).update(STRENGTH=1),
    "a tensor in a global": lambda _samples: WEIGHTS.add_(1),
    "a list that was empty": lambda _samples: LATE.append(1),
    "a slot": lambda samples: samples.slotted.__setattr__("strength", 1),
    "what a static method reads": lambda samples: samples.own.update(more=1),
    "a class": lambda _samples: type.__setattr__(Samples, "strength", 1),
}


class Falling(Sampler[int]):
    """Decides about each sample when it is read, and notes it."""

    def __init__(self) -> None:
        self.last, self.drawn = 0, list[int]()

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[int]:
        for number in range(40):
            self.drawn.append(number)
            yield max(39 - number, self.last)


def strength(argument: Any) -> int:
    return int(OPTIONS.strength + records.STRENGTH + argument.strength)


def shifted() -> tuple[Callable[[int], None], Callable[[], int]]:
    by = 0

    def shift(more: int) -> None:
        nonlocal by
        by += more

    return shift, lambda: by


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_script_changes_in_the_middle_of_a_pass_is_read(change: str) -> None:
    def read(index: int) -> Any:
        more = len(samples.transform.steps) + samples.labels[index] + samples.by() + STRENGTH + samples.strength
        more += samples.partial() + WEIGHTS.sum() + len(LATE) + samples.slotted.strength + samples.more()
        return (index * samples.transform.strength + samples.rows[0] + more) * samples.scale

    def passes() -> list[Any]:
        torch.manual_seed(0)
        samples.transform, samples.rows = SimpleNamespace(strength=1, steps=[0]), [torch.zeros(1)]
        with torch.inference_mode():
            samples.features = torch.zeros(1)  # its writes are not counted
        vars(samples).update({f"own_{number}": number for number in range(12)}, collate=collate)
        samples.scale, collate.scale, samples.labels = 1, 1, [0] * 40
        globals()["STRENGTH"] = Samples.strength = OPTIONS.strength = records.STRENGTH = 0
        WEIGHTS.zero_(), LATE.clear(), samples.own.update(more=0)
        samples.slotted = Slotted()
        samples.slotted.strength = 0
        samples.partial = partial(strength, SimpleNamespace(strength=0))
        samples.shift, samples.by = shifted()
        found = []
        for _ in range(2):
            for number, batch in enumerate(loader):
                if number == 5:
                    CHANGES[change](samples)
                found.append(batch.tolist())
        return found

    samples: Any = Samples(read, 40)
    collate: Any = Scales()
    loader = DataLoader(Subset(samples, range(40)), 2, shuffle=True, collate_fn=collate)
    plain = passes()
    with prepared(loader, num_workers=2) as session:
        assert passes() == plain
        assert dict(session.not_applied)["num_workers"].endswith(loader_workers.CHANGED)


class Trainer:
    """Counts its steps, and collates."""

    steps, options, pad = 0, OPTIONS, 0

    def collate(self, samples: Any) -> Any:
        return torch.tensor(samples) + self.pad

    def step(self) -> None:
        self.steps += 1
        self.options.steps += 1
        self.numbers = random.Random(self.steps)


def test_what_reading_does_not_look_at_may_change() -> None:
    trainer, samples = Trainer(), Samples(lambda index: index + OPTIONS.strength + Trainer.options.strength, 40)
    loader = DataLoader(samples, 2, collate_fn=trainer.collate)
    with prepared(loader, num_workers=1) as session:
        for _batch in itertools.chain(loader, loader):
            trainer.step()
        assert session.not_applied == ()


def test_a_logger_that_both_use_is_no_change() -> None:
    samples: Any = Samples(lambda index: index + 0 * len(LOGGER.name), 40)
    samples.logger = LOGGER
    loader = DataLoader(samples, 2)
    with prepared(loader, num_workers=1) as session:
        for number, _batch in enumerate(loader):
            LOGGER.isEnabledFor(number)  # it remembers the answers
        assert session.not_applied == ()


def test_a_change_of_the_users_own_order_is_said_and_its_own_changes_are_none() -> None:
    order = Falling()
    loader = DataLoader(Samples(lambda index: index, 40), 2, sampler=order)
    with prepared(loader, num_workers=1) as session:
        assert torch.cat([*loader]).tolist() == [*reversed(range(40))]
        assert session.not_applied == ()
        for number, _batch in enumerate(loader):
            if number == 5:
                order.last = 8
        assert dict(session.not_applied)["num_workers"].endswith(loader_workers.CHANGED)


def test_what_a_data_set_records_late_is_said() -> None:
    """Seen: numbers of broken samples were collected in a worker, and the script printed an empty list."""
    samples: Any = Samples(lambda index: samples.broken.append(index) or index if index == 30 else index, 40)
    samples.broken = []
    loader = DataLoader(samples, 2)
    with prepared(loader, num_workers=1) as session:
        assert torch.cat([*loader]).tolist() == [*range(40)]
        assert dict(session.not_applied)["num_workers"].endswith(loader_workers.RECORDS)
        assert samples.broken == []
        assert len([*loader]) == 20
        assert samples.broken == [30], "without workers"


def test_what_a_worker_notes_of_itself_is_no_record() -> None:
    """Data sets open their files anew where the process is another one."""
    samples: Any = Samples(lambda index: vars(samples).update(process=os.getpid()) or index)
    samples.process = os.getpid()
    loader = DataLoader(samples, 2)
    with prepared(loader, num_workers=2) as session:
        assert torch.cat([*loader, *loader]).tolist() == [*range(8), *range(8)]
        assert session.not_applied == ()


def test_a_pass_goes_on_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [1]

    def begin(worker: Any) -> None:
        if not left:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        left.pop()
        worker.start_now()

    monkeypatch.setattr(loader_workers.LateProcess, "start_now", loader_workers.LateProcess.begin, raising=False)
    monkeypatch.setattr(loader_workers.LateProcess, "begin", begin)
    loader = DataLoader(Samples(lambda index: index), 2)
    with prepared(loader, num_workers=2) as session:
        assert torch.cat([*loader, *loader]).tolist() == [*range(8), *range(8)]
        assert "temporarily unavailable" in dict(session.not_applied)["num_workers"]


class Odd(Exception):
    """Takes others than it keeps."""

    def __init__(self, shard: str, position: int) -> None:
        super().__init__(f"{shard} is broken at {position}")
        self.shard, self.position = shard, position


class Prefixed(Exception):
    """Writes its message from what it gets, which it does not keep."""

    def __init__(self, path: str) -> None:
        super().__init__(f"cannot read {path}")


class Missing(FileNotFoundError):
    """Has arguments of its own."""

    def __init__(self, shard: int) -> None:
        super().__init__(2, "no such shard", f"{shard}.tar")


def local_class() -> Exception:
    kind = type("NoSuchKey", (Exception,), {})  # as clients of object stores make theirs
    globals()["KEPT"] = kind
    return kind("gone")


def holds_a_lock() -> Exception:
    error = ValueError("broken")
    vars(error).update(lock=threading.Lock(), line=7)
    return error


def caused() -> Exception:
    error = RuntimeError("cannot be read")
    error.__cause__ = KeyError("key")
    return error


class Broken(IterableDataset[Any]):
    """A stream of eight samples, read like those of `Samples`."""

    def __init__(self, read: Callable[[int], Any]) -> None:
        self.read = read

    def __iter__(self) -> Iterator[Any]:
        return map(self.read, range(8))


def _pass(loader: Any) -> Iterator[Any]:
    batches = iter(loader)
    while True:
        try:
            yield [each() if callable(each) else each for each in next(batches)]
        except StopIteration:
            return
        except BaseException as error:
            names = ("args", "errno", "filename", "position", "code", "line", "__cause__")
            yield type(error).__qualname__, str(error), [repr(getattr(error, name, None)) for name in names]


ERRORS: list[Callable[[], BaseException]] = [
    *(lambda: OSError(5, "broken", "five.jpg"), lambda: Odd("a.tar", 7), local_class, holds_a_lock, caused),
    *(lambda: Prefixed("a.tar"), lambda: Missing(7), lambda: SystemExit(3), KeyboardInterrupt),
]


@pytest.mark.parametrize("dataset", [Samples, Broken])
@pytest.mark.parametrize("error", [*ERRORS, None])
def test_what_a_worker_cannot_do_ends_as_without_workers(error, dataset) -> None:
    """It raises what a stream has made before and a map makes in the worker, or gives what cannot be sent."""
    made = error() if error is not None and dataset is Broken else None

    def read(index: int) -> Any:
        if index == 5 and error is not None:
            raise made or error()
        return (lambda: 7 * index) if error is None and dataset is Samples and index > 2 else index

    loader = DataLoader(dataset(read), 2, collate_fn=list)
    torch.manual_seed(3)
    plain = [*_pass(loader), torch.rand(1)]
    with prepared(loader, num_workers=1):
        torch.manual_seed(3)
        tuned = [*_pass(loader), torch.rand(1)]
        assert workers_of(loader) == 1
    assert tuned == plain


@pytest.mark.parametrize("size", [lambda index: index % 40 + 1, lambda _index: 20_000], ids=["ragged", "large"])
def test_batches_that_are_kept_do_not_use_up_descriptors(size: Callable[[int], int]) -> None:
    loader = DataLoader(Samples(lambda index: torch.full((size(index),), index), 160), 16, collate_fn=list)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_batches, "MOST_MAPPED", 2 * used + 80)
        with prepared(loader, num_workers=1):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
            kept = [sample for batch in loader for sample in batch]
            assert len(os.listdir("/proc/self/fd")) < used + 80
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    assert [int(sample[-1]) for sample in kept] == list(range(160))


def test_a_pass_goes_on_without_workers_that_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that another thread holds while they are forked is never released for them."""
    monkeypatch.setattr(loader_workers, "PATIENCE", 0.2)
    monkeypatch.setattr(loader_workers.LateIterator._try_get_data, "__defaults__", (0.1,))
    lock, free = threading.Lock(), threading.Event()

    def read(index: int) -> int:
        if index >= 8:
            with lock:
                return index
        return index

    loader = DataLoader(Samples(read, 16), 2)
    with prepared(loader, num_workers=2) as session:
        held = threading.Thread(target=lambda: (lock.acquire(), free.wait(), lock.release()), daemon=True)
        held.start()
        passing = iter(loader)
        first = next(passing)
        free.set()
        held.join()
        assert torch.cat([first, *passing]).tolist() == list(range(16))
        assert torch.cat(list(loader)).tolist() == list(range(16)), "the next pass"
        assert "have sent no batch" in dict(session.not_applied)["num_workers"]


class Lines(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from (1, 2, 3, lambda: 4)


def test_a_batch_of_a_stream_that_cannot_be_sent_is_not_lost() -> None:
    loader = DataLoader(Lines(), 2, collate_fn=list)
    with prepared(loader, num_workers=1):
        passing = iter(loader)
        assert next(passing) == [1, 2]
        with pytest.raises(Exception, match="pickle"):
            next(passing)


def test_a_data_set_that_is_dropped_is_freed() -> None:
    with Session(quiet(num_workers=1), "cpu", moves=False) as session:
        loader = DataLoader(Samples(lambda index: index), 2)
        session.prepare(loader)
        assert torch.cat([*loader]).tolist() == [*range(8)]
        gone = weakref.ref(loader.dataset)
        del loader
        assert gone() is None, "without a walk over the heap"


def test_what_prepares_workers_is_not_called_where_the_user_has_none() -> None:
    loader = DataLoader(Samples(lambda index: index), 2, worker_init_fn=lambda _worker: os._exit(1))
    with prepared(loader, num_workers=1, worker_threads="one"):
        assert torch.cat([*loader]).tolist() == [*range(8)]


def test_signals_of_a_group_are_the_training_processs() -> None:
    def read(index: int) -> int:
        for number in loader_workers.SCRIPTS_SIGNALS:
            signal.raise_signal(number)
        return os.getpid()

    loader = DataLoader(Samples(read), 4)
    with prepared(loader, num_workers=1):
        assert os.getpid() not in torch.cat([*loader]).tolist()


def test_a_pass_that_a_fork_begins_is_read_by_it() -> None:
    loader = DataLoader(Samples(lambda index: index), 2)
    with prepared(loader, num_workers=1):
        passing = iter(loader)
        if (child := os.fork()) == 0:
            os._exit(torch.cat([*passing]).tolist() != [*range(8)])
        assert os.waitpid(child, 0)[1] == 0
        assert torch.cat([*passing]).tolist() == [*range(8)]


def test_workers_are_no_children_of_the_scripts() -> None:
    """It may wait for its children, and a fork of it may read on, and end, while others train on."""
    loader = DataLoader(Samples(lambda index: index), 2)
    with prepared(loader, num_workers=1):
        passing = iter(loader)
        next(passing)
        assert multiprocessing.active_children() == []
        if (child := os.fork()) == 0:
            left = torch.cat([*passing, *loader]).tolist()
            multiprocessing.util._exit_function()  # as sys.exit does
            os._exit(left != [*range(2, 8), *range(8)])
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(passing)) == 3


class Drawn(Sampler[Any]):
    """Batches that are drawn when a pass begins, not when its first batch is read."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(8).tolist()
        return iter([order[:4], order[4:]])


@pytest.mark.parametrize(("own", "tuned"), [(0, 1), (1, 0)])
def test_an_order_is_begun_as_often_as_without(own: int, tuned: int) -> None:
    def passes(workers: int) -> list[Any]:
        torch.manual_seed(0)
        loader = DataLoader(Samples(lambda index: index), batch_sampler=Drawn(), num_workers=own)
        with prepared(loader, num_workers=workers) as session:
            assert (workers_of(loader), session.not_applied) == (workers, ())
            return [torch.cat(list(loader)).tolist() for _ in range(3)]

    assert passes(tuned) == passes(own)


ENDS = """
import torch
from torch.utils.data import DataLoader
from autotune.runtime.session import Session
from tests.torch.records import quiet
Session(quiet(num_workers=1), device="cpu").prepare(loader := DataLoader(torch.arange(64), 1))
passing = iter(loader)
next(passing)
def batches():
    yield from passing
kept = batches()
next(kept)
print(passing._workers[0].pid)
"""


def test_no_worker_outlives_the_script(tmp_path: Path) -> None:
    with open(tmp_path / "pid", "w+") as file:
        subprocess.run([sys.executable, "-c", ENDS], stdout=file, check=True)
        file.seek(0)
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read()), 0)


def test_a_daemonic_process_starts_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(Samples(lambda _index: os.getpid()), 2)
    with prepared(loader, num_workers=1) as session:
        monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
        assert set(torch.cat(list(loader)).tolist()) == {os.getpid()}
        assert "daemonic" in dict(session.not_applied)["num_workers"]


def test_copies_and_own_settings_are_the_users() -> None:
    loader = DataLoader(Samples(lambda index: index), 4)
    with prepared(loader, num_workers=1):
        assert type(loader) is DataLoader
        twin = copy.copy(loader)
        twin.collate_fn = sum
        assert (type(twin), twin.num_workers, list(twin)) == (DataLoader, 0, [6, 22])
        loader.num_workers = 0
        assert torch.cat(list(loader)).tolist() == list(range(8))
    assert (type(loader), loader.num_workers) == (DataLoader, 0)


class Frozen(DataLoader[Any]):
    """Takes no attributes once it is made, and leaves its lock out of copies."""

    def __setattr__(self, name: str, value: Any) -> None:
        if "is_made" in vars(self):
            raise TypeError("frozen")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "lock"}


class Own(Frozen):
    """Iterates in its own way."""

    def _get_iterator(self) -> Any:
        return iter(["mine"])


def test_a_loader_of_a_class_of_the_scripts_keeps_its_ways() -> None:
    loader = Frozen(Samples(lambda index: index), 4)
    vars(loader).update(lock=threading.Lock(), is_made=True)
    with prepared(loader, num_workers=1):
        assert torch.cat(list(loader)).tolist() == list(range(8))
        twin = copy.deepcopy(loader)
        assert (torch.cat(list(twin)).tolist(), set(vars(loader)) - set(vars(twin))) == (
            list(range(8)),
            {"lock", "_get_iterator", "__reduce_ex__"},
        )
        object.__setattr__(loader, "__class__", Own)
        assert list(loader) == ["mine"]


def _arrives_late(index: int) -> int:
    if index < 4:  # batch 0, by the first worker
        time.sleep(0.2)
    return index


def test_batches_keep_their_order_and_a_pass_begins_with_its_first_batch() -> None:
    """Whatever order the loader would give workers of its own."""
    samples = Samples(_arrives_late, 16)
    loader = DataLoader(samples, 4, **({"in_order": False} if "in_order" in vars(DataLoader([0])) else {}))
    with prepared(loader, num_workers=2):
        passing = iter(loader)
        assert torch.cat(list(passing)).tolist() == list(range(16))
        passing, samples.read = iter(loader), lambda index: -index
        assert torch.cat(list(passing)).tolist() == [-index for index in range(16)]
        assert len(iter(loader)) == 4  # nothing is started for it


@pytest.mark.parametrize("draws", [True, False])
@pytest.mark.parametrize("options", [{"num_samples": 24}, {"replacement": True, "num_samples": 80}, {}])
def test_an_order_whose_generator_the_loop_draws_from_is_kept(options: dict[str, Any], draws: bool) -> None:
    """Several permutations in a pass, or some indices at a time, from one generator for everything."""

    def train(workers: int) -> list[Any]:
        generator = torch.Generator().manual_seed(3)
        samples = Samples(lambda index: index)
        loader = DataLoader(samples, 2, sampler=RandomSampler(samples, generator=generator, **options))
        with prepared(loader, num_workers=workers):
            noise = generator if draws else torch.Generator().manual_seed(4)
            return [(batch.tolist(), torch.rand(1, generator=noise).item()) for _ in range(2) for batch in loader]

    assert train(2) == train(0)
