"""Batches on their way from a loader worker that tuning adds: what is sent, how, and what a worker leaves undone.

What it cannot do (a sample that raises or exits, a batch that cannot be sent) the training process does itself, from
the same random numbers. So errors are the user's own, as without workers.
"""

from __future__ import annotations

import os
import pickle
import resource
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions
from torch.utils.data import Dataset, _utils, dataloader

from autotune.knobs.change import Method
from autotune.runtime import random_state
from autotune.runtime.reading import CONTAINERS, SCALARS, attributes, objects

create_fetcher: Callable[..., Any] = dataloader._DatasetKind.create_fetcher
pin_memory: Callable[..., Any] = _utils.pin_memory.pin_memory
reduce_storage: Callable[..., Any] = reductions.reduce_storage
SHARED_MEMORY = "/dev/shm"
BY_VALUE = 2**16
"""Bytes of a tensor that is sent as it is; a larger one is sent in shared memory, and takes a descriptor while it
lives."""
OS_FIELDS = ("errno", "strerror", "filename", "filename2")
MOST_MAPPED = 2**16
"""Pieces of shared memory that a process may hold, whatever its limit of descriptors (``vm.max_map_count``)."""


@dataclass
class Left:
    """What a worker could not do: to read the batch of ``indices``, from the random numbers of ``state`` if known."""

    indices: Any
    state: bytes | None = None

    def read(self, iterator: Any) -> Any:
        """Read the batch in this process, as ``iterator`` without workers does."""
        names = ("_dataset_kind", "_dataset", "_auto_collation", "_collate_fn", "_drop_last")
        fetcher = create_fetcher(*(getattr(iterator, name) for name in names))
        before = random_state.read()
        if self.state is not None:
            random_state.write(self.state)
        try:
            batch = fetcher.fetch(self.indices)
        finally:
            if self.state is not None:
                random_state.write(before)
        return pin_memory(batch, iterator._pin_memory_device) if iterator._pin_memory else batch


class Raised:
    """What a stream raised in a worker: it ends there, as without workers. All of it can be pickled."""

    def __init__(self, error: BaseException) -> None:
        kind, cause = type(error), error.__cause__
        self._whole = _content(error)
        self._kind = kind if _survives(kind) else None
        self._place, self._name = id(kind), kind.__qualname__
        self._arguments = tuple(each if _survives(each) else repr(each) for each in error.args)
        fields = {name: getattr(error, name) for name in OS_FIELDS} if isinstance(error, OSError) else {}
        own = vars(error) | {name: value for name, value in fields.items() if value is not None}
        self._state = {name: value for name, value in own.items() if _survives(value)}
        self._trace = "".join(traceback.format_exception(kind, error, error.__traceback__, chain=False))
        self._cause = None if cause is None or cause is error else Raised(cause)

    def error(self) -> BaseException:
        """Make it again: its ``__init__`` may take other arguments than it has. A class that was made in the worker is
        not here."""
        if self._whole is not None:
            made: BaseException = pickle.loads(self._whole)
        else:
            kind = self._kind or next((each for each in _errors() if id(each) == self._place), None)
            if kind is None or kind.__qualname__ != self._name:
                return RuntimeError(self._trace)
            made = kind.__new__(kind, *self._arguments)
            made.args = self._arguments
            for name, value in self._state.items():
                with suppress(Exception):  # a class may refuse
                    setattr(made, name, value)
        if self._cause is not None:
            made.__cause__ = self._cause.error()
        if hasattr(made, "add_note"):  # since Python 3.11
            made.add_note(f"In a loader worker:\n{self._trace}")
        return made


def _content(value: Any) -> bytes | None:
    """Return ``value`` as it is sent; None if it cannot be, or is something else when it comes: an exception is made
    again from its arguments, which its class may change once more."""
    try:
        content = bytes(ForkingPickler.dumps(value))
        again = pickle.loads(content)
        is_same = type(again) is type(value) and (not isinstance(value, BaseException) or str(again) == str(value))
        return content if is_same else None
    except Exception:
        return None


def _survives(value: Any) -> bool:
    return _content(value) is not None


def _errors(kind: type[BaseException] = BaseException) -> Iterator[type[BaseException]]:
    """Yield all classes of exceptions. A fork has them in the same places."""
    yield kind
    for each in kind.__subclasses__():
        yield from _errors(each)


class _Pickled:
    """A batch that has been pickled already: what cannot be is found out before it is on its way."""

    def __init__(self, batch: Any) -> None:
        self._content = bytes(ForkingPickler.dumps(batch))

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._content,)


@dataclass
class Recorded:
    """A ``batch``, and that something was recorded in this worker while it was read."""

    batch: Any


def _reading(original: Method) -> Method:
    """Return what reads a batch, and notes if the data sets or the collate object counted or collected something."""
    watched: list[Any] = []

    def read(fetcher: Any, indices: Any) -> _Pickled:
        if not watched:  # at first it may note which process it is in, and what it has opened there
            sets = (each for each in objects([fetcher.dataset]) if issubclass(type(each), Dataset))
            watched.extend([*sets, fetcher.collate_fn, getattr(fetcher.collate_fn, "__self__", None)])
            return _Pickled(original(fetcher, indices))
        before = _records(watched)
        batch = original(fetcher, indices)
        now = _records(watched)
        is_same = all(name not in now or now[name] is own or now[name] == own for name, own in before.items())
        return _Pickled(batch if is_same else Recorded(batch))

    return read


def _records(watched: Iterable[Any]) -> dict[tuple[int, str], Any]:
    """Return numbers and texts that are held, and how much lists and the like hold. What is opened late is none."""
    found: dict[tuple[int, str], Any] = {}
    for number, each in enumerate(watched):
        for name, value in attributes(each).items():
            if type(value) in CONTAINERS:
                found[number, name] = len(value)
            elif type(value) in SCALARS:
                found[number, name] = value
    return found


def guarded(original: Method) -> Method:
    """Leave what cannot be read or sent to the training process."""
    read = _reading(original)

    def fetch(fetcher: Any, indices: Any) -> Any:
        state = random_state.read()
        try:
            return read(fetcher, indices)
        except BaseException:  # SystemExit, too: it ends the training process, not this one
            return Left(indices, state)

    return fetch


def passed_on(original: Method) -> Method:
    """Send what a stream raises; also that a batch cannot be sent, which would be lost."""
    read = _reading(original)

    def fetch(fetcher: Any, indices: Any) -> Any:
        try:
            return read(fetcher, indices)
        except StopIteration:
            raise
        except BaseException as error:
            return _Pickled(Raised(error))

    return fetch


def sent(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    """Reduce a small storage to its content, and a large one to shared memory, if there is enough."""
    if storage.device.type == "cpu" and (storage.nbytes() <= BY_VALUE or _is_scarce(storage.nbytes())):
        return _of_bytes, (_as_bytes(storage).numpy().tobytes(),)
    rebuild, arguments = reduce_storage(storage)
    return _received, (rebuild, *arguments)


def _as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _of_bytes(content: bytes) -> torch.UntypedStorage:
    empty = torch.empty(len(content), dtype=torch.uint8)
    if content:
        empty.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    return empty.untyped_storage()


def _received(rebuild: Callable[..., torch.UntypedStorage], *arguments: Any) -> torch.UntypedStorage:
    """Return what a worker has sent: in shared memory while there is enough, else a copy."""
    storage = rebuild(*arguments)
    return _as_bytes(storage).clone().untyped_storage() if _is_scarce() else storage


def _is_scarce(more: int = 0) -> bool:
    """Return True if half of the descriptors or of the shared memory are taken, with so many bytes ``more``."""
    lowest = os.open(os.devnull, os.O_RDONLY)  # descriptors are given from below
    os.close(lowest)
    if 2 * lowest > min(MOST_MAPPED, resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        return True
    with suppress(OSError):
        shared = os.statvfs(SHARED_MEMORY)
        return 2 * (shared.f_bavail - more / shared.f_frsize) < shared.f_blocks
    return False
