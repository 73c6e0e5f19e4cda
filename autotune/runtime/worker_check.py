"""Whether reading a dataset in loader workers, which have copies of it, would give other data than reading it here.

What belongs to this process (open files, threads, locks) is found without reading. Then a process like a loader worker
reads a few samples, and compares what it can reach before and after that.
"""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from types import FunctionType
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader, SubsetRandomSampler

from autotune.runtime.reach import Reached, codes, is_library, module_of, walk
from autotune.runtime.snapshot import changed, snapshot

PATIENCE = 10.0
"""Seconds that a read of one or two samples may take."""
LOCKS = (type(threading.Lock()), type(threading.RLock()))
SHARED = {
    ("multiprocessing", "BaseProxy"),
    ("multiprocessing", "BufferWrapper"),
    ("multiprocessing", "Queue"),
    ("multiprocessing", "SharedMemory"),
    ("multiprocessing", "SimpleQueue"),
    ("multiprocessing", "SynchronizedBase"),
    ("sqlite3", "Connection"),
    ("h5py", "HLObject"),
    ("lmdb", "Environment"),
    ("builtins", "Environment"),  # lmdb's, in C
    ("cv2", "VideoCapture"),
    ("netCDF4", "Dataset"),
    ("tables", "File"),
    ("pyarrow", "NativeFile"),
}
"""``(package, class)`` of what processes share: objects of Python's, and files and databases of libraries in C."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES_FILES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")


def why_not_in_workers(loader: DataLoader[Any]) -> str | None:
    """Why workers must not be added to ``loader``, which has none, or None. Takes as long as four samples."""
    return _why_no_fork(loader) or _bound_to_process(loader) or _try(loader)


def asks_for_worker(loader: DataLoader[Any]) -> str | None:
    """Why the data may depend on whether workers read them, or None."""
    functions = (each for each in walk(_roots(loader)) if isinstance(each.value, FunctionType) and not each.library)
    asking = (
        each for each in functions if any("get_worker_info" in code.co_names for code in codes(each.value.__code__))
    )
    return next((f"{each.path} asks for its worker" for each in asking), None)


def _roots(loader: DataLoader[Any]) -> dict[str, Any]:
    return {type(loader.dataset).__name__: loader.dataset, "collate_fn": loader.collate_fn}


def _why_no_fork(loader: DataLoader[Any]) -> str | None:
    if multiprocessing.current_process().daemon:
        return "a daemonic process cannot start workers"
    context: Any = loader.multiprocessing_context or multiprocessing.get_context()
    method = context.get_start_method()
    return None if method == "fork" else f"workers started by {method!r} would run the script's top level again"


# What belongs to this process -------------------------------------------------------------------------------------


def _bound_to_process(loader: DataLoader[Any]) -> str | None:
    for found in walk(_roots(loader)):
        what = _what_is_bound(found)
        if what is not None:
            return f"{found.path} is {what}"
    return None


def _what_is_bound(found: Reached) -> str | None:
    value = found.value
    if isinstance(value, LOCKS):
        return "a lock that is held" if _is_held(value) else None
    if isinstance(value, threading.Thread):
        return "a running thread, which workers would not have" if _runs(value) else None
    if isinstance(value, Tensor):
        shared = value.device.type == "cpu" and value.is_shared()  # type: ignore[no-untyped-call]
        return "in shared memory, which a read could change" if shared else None
    if _is_open(value):
        return "an open file, a connection or shared memory, which workers would use together"
    iterates = hasattr(type(value), "__next__") and not hasattr(type(value), "__getitem__")
    own = not found.library and not isinstance(value, io.IOBase)
    return "an iterator, which workers would have copies of" if iterates and own else None


def _is_held(lock: Any) -> bool:
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


def _runs(thread: threading.Thread) -> bool:
    return thread.is_alive() and thread not in (threading.main_thread(), threading.current_thread())


def _is_open(value: Any) -> bool:
    kind = type(value)
    if any((module_of(owner).partition(".")[0], owner.__name__) in SHARED for owner in kind.__mro__):
        return True
    if not hasattr(kind, "fileno") or any(value is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return False
    try:
        return int(value.fileno()) > 2
    except Exception:  # closed, in memory, or something else with a method of this name
        return False


# A try in a process like a worker ---------------------------------------------------------------------------------


def _try(loader: DataLoader[Any]) -> str | None:
    indices = _indices(loader)
    if not indices:
        return None
    context: Any = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(loader, indices, sender), daemon=True)
    process.start()
    sender.close()
    try:
        return _answer(receiver)
    finally:
        process.kill()
        process.join(PATIENCE)
        receiver.close()


def _answer(receiver: Connection) -> str | None:
    """The first reason that comes. After each read the process says something."""
    try:
        while receiver.poll(PATIENCE):
            reason: str | bool = receiver.recv()
            if reason is True:
                return None
            if reason:
                return str(reason)
    except EOFError:
        return "a worker that reads samples ends at once"
    return f"a worker gave no sample within {PATIENCE:g} seconds"


def _indices(loader: DataLoader[Any]) -> list[list[Any]]:
    """Batches to read: one sample, then the first with the middle one, then the last."""
    batches: Any = loader.batch_sampler
    every = _every_index(batches.sampler)
    last = len(every) - 1
    places = [[last // 3], [0, (last + 1) // 2], [last]] if last >= 0 else []
    wanted = [[every[place] for place in batch] for batch in places]
    return [[index] for batch in wanted for index in batch] if batches.batch_size == 1 else wanted


def _every_index(sampler: Any) -> Sequence[Any]:
    """What a sampler that `autotune.runtime.order` knows draws from."""
    if isinstance(sampler, SubsetRandomSampler):
        return sampler.indices
    source = next(getattr(sampler, name) for name in ("data_source", "weights", "dataset") if hasattr(sampler, name))
    return range(len(source))


def _work(loader: DataLoader[Any], indices: list[list[Any]], sender: Connection) -> None:
    """Read ``indices``; send None after each read, and at the end a reason against workers or True."""
    _be_quiet()
    torch.set_num_threads(1)
    watch = _Watch()
    reason: str | None = None
    try:
        for reason in _reads(loader, indices, watch):
            if reason is not None:
                break
            sender.send(None)
    except Exception as error:  # whatever it is, a worker would raise it too
        reason = f"reading in a worker raises {type(error).__name__}: {str(error)[:200]}"
    moved = watch.put_back()
    sender.send(watch.seen or reason or moved or True)


def _reads(loader: DataLoader[Any], indices: list[list[Any]], watch: _Watch) -> Iterator[str | None]:
    roots = _roots(loader)
    before, used = snapshot(roots), None
    for batch in indices:
        with watch:
            collated = loader.collate_fn(_samples(loader.dataset, batch))
        yield _not_handed_over(collated, roots)
        used = used or snapshot(roots)
    assert used is not None
    path = changed(before, used, snapshot(roots))
    yield f"{path} changes when samples are read" if path else None


def _samples(dataset: Any, indices: list[Any]) -> list[Any]:
    if callable(getattr(dataset, "__getitems__", None)):
        return list(dataset.__getitems__(indices))
    return [dataset[index] for index in indices]


def _not_handed_over(batch: Any, roots: dict[str, Any]) -> str | None:
    """Why a worker cannot hand ``batch`` over, or hands over something else."""
    found = [each.value for each in walk({"batch": batch})]
    if any(isinstance(value, Tensor) and value.requires_grad for value in found):
        return "samples require gradients, which stay in the process"
    try:
        _Pickler(io.BytesIO()).dump(batch)
    except Exception as error:
        return f"a batch cannot be handed over: {str(error)[:200]}"
    owned = _Owned(roots)
    return "batches hold objects of the dataset itself, which the loop may change" if any(map(owned, found)) else None


class _Pickler(ForkingPickler):
    """As workers pickle batches, without the content of tensors."""

    def persistent_id(self, value: Any) -> str | None:
        """Tensors are handed over apart."""
        return "tensor" if isinstance(value, Tensor) else None


class _Owned:
    """Tells what a dataset holds itself: mutable objects, and memory of tensors and arrays."""

    def __init__(self, roots: dict[str, Any]) -> None:
        values = [found.value for found in walk(roots)]
        self._objects = {id(value) for value in values if _is_mutable(value)}
        self._memory = [span for span in map(_memory, values) if span is not None]

    def __call__(self, value: Any) -> bool:
        span = _memory(value)
        shares = span is not None and any(start <= span[0] < end for start, end in self._memory)
        return shares or id(value) in self._objects


def _is_mutable(value: Any) -> bool:
    return isinstance(value, dict | list | set) or not (callable(value) or is_library(module_of(type(value))))


def _memory(value: Any) -> tuple[int, int] | None:
    """``(start, end)`` of what a tensor or a writable array lies in."""
    if isinstance(value, Tensor) and value.layout is torch.strided and value.device.type == "cpu":
        start = value.data_ptr()
        size = value.untyped_storage().nbytes() - int(value.storage_offset()) * value.itemsize
    elif isinstance(value, numpy.ndarray) and value.flags.writeable:
        start, size = value.__array_interface__["data"][0], value.nbytes
    else:
        return None
    return (start, start + size) if size else None


def _be_quiet() -> None:
    """What the dataset prints and logs is said once, by the real reads."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(null, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    sys.dont_write_bytecode = True
    logging.disable()


class _Watch:
    """Keeps reads from writing files while inside, and tells whether they move files that were open before."""

    def __init__(self) -> None:
        self.seen: str | None = None
        self._on = False
        self._places = dict(_open_files())
        sys.addaudithook(self._hear)

    def __enter__(self) -> None:
        self._on = True

    def __exit__(self, *_exception: object) -> None:
        self._on = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on or not (event in CHANGES_FILES or (event == "open" and _writes(*arguments))):
            return
        self.seen = "reading a sample writes files"
        raise PermissionError("a sample that is read on trial must not write files")

    def put_back(self) -> str | None:
        """Leave files that were open before the fork where they were. Returns whether any was read."""
        moved = [fd for fd, place in _open_files() if self._places.get(fd, place) != place]
        for fd in moved:
            os.lseek(fd, self._places[fd], os.SEEK_SET)
        return "reading uses a file that was opened before, which workers would share" if moved else None


def _writes(path: object, _mode: object, flags: object, *_rest: object) -> bool:
    return isinstance(flags, int) and bool(flags & WRITES) and not str(path).startswith("/dev/")


def _open_files() -> Iterator[tuple[int, int]]:
    """Descriptors that can be read by position, and where they stand."""
    for name in os.listdir("/dev/fd"):
        try:
            if int(name) > 2:
                yield int(name), os.lseek(int(name), 0, os.SEEK_CUR)
        except OSError:  # a pipe, a socket, or the listing itself
            continue
