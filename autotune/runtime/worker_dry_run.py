"""A few samples read in a process like a loader worker: a dry run, which leaves no trace.

What the process can reach is compared before and after that. It writes no files, says nothing, and leaves files that
were open before where they stood.
"""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader, SubsetRandomSampler

from autotune.runtime.reach import is_library, module_of, roots_of, walk
from autotune.runtime.snapshot import changed, snapshot

PATIENCE = 10.0
"""Seconds that a read of one or two samples may take."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES_FILES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")


def try_in_worker(loader: DataLoader[Any]) -> str | None:
    """What a few reads in a process like a loader worker say against workers, or None."""
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
    roots = roots_of(loader)
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
    """Descriptors that can be read by position, and where they stand. Others may write to a log: it is left alone."""
    import fcntl  # here: Windows has none, and no processes like these

    for name in os.listdir("/dev/fd"):
        try:
            if int(name) > 2 and fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY:
                yield int(name), os.lseek(int(name), 0, os.SEEK_CUR)
        except OSError:  # a pipe, a socket, or the listing itself
            continue
