"""Loader workers that tuning adds: whether they may start, what each does first, and the pass that reads from them."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import io
import itertools
import math
import multiprocessing
import os
import random
import resource
import signal
import stat
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import process
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, _utils
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from autotune.knobs.change import Change, replace
from autotune.runtime import random_state
from autotune.runtime.reading import Reading, held, same
from autotune.runtime.served_loaders import ITERATOR, copied, served
from autotune.runtime.worker_batches import Left, Raised, Recorded, guarded, passed_on, sent

children: set[Any] = process._children  # type: ignore[attr-defined]
handling: Any = _utils.signal_handling
DESCRIPTORS, LOCKS = "/proc/self/fd", "/proc/locks"
NUM_WORKERS, FIRST, MULTIPROCESSING_CONTEXT = "num_workers", "worker_init_fn", "_DataLoader__multiprocessing_context"
SHARED_RANDOM = random.random.__self__  # type: ignore[attr-defined]
"""What draws for the functions of the module ``random``: PyTorch seeds it in each worker."""
STREAMS = 2
"""The last descriptor of standard input and output."""
PATIENCE, CHECKED_EVERY = 30.0, 5.0
"""Seconds without a batch after which workers hang, and between two looks at whether they still run."""
CHANGED = "the script changes its data set or its order in the middle of a pass, which workers would not see"
RECORDS = "the data set records something while it is read, which stays in a worker"
RANDOM = "the data set holds random numbers of its own, which each worker would draw again"
WRITES = "the data set holds a file that it may write to, which workers would share"
UNSEEN = "the script changes its stream in the middle of a pass: that pass was read without the change"
SCRIPTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Sent to a whole group of processes, as by ``timeout`` and Slurm: the training process alone answers."""
STALLED = "its workers have sent no batch for {:.0f} s (they may wait for a lock or a thread that they do not have)"
LOCKED = "this process holds a lock on a file, which workers would not have"
THREADED = "the data set holds a thread, which workers would not have"
HANDLED = "the script handles SIGCHLD, which it would get whenever a worker ends"
ONCE = "its order can be read only once: batches that workers read ahead would be lost when a pass is left"


def open_files() -> dict[int, tuple[int, os.stat_result]]:
    """Return position and status of each regular file that this process may read from, by its descriptor."""
    found = {}
    for fd in map(int, os.listdir(DESCRIPTORS) if os.path.isdir(DESCRIPTORS) else ()):
        with suppress(OSError):  # the listing itself is closed by now
            reads = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
            if reads and fd > STREAMS and stat.S_ISREG((status := os.fstat(fd)).st_mode):
                found[fd] = os.lseek(fd, 0, os.SEEK_CUR), status
    return found


def why_not_shared(loader: DataLoader[Any], files: Iterable[int], reading: Reading) -> str | None:
    """Return why workers that are forked now could not read on as this process does, or None."""
    if multiprocessing.current_process().daemon:
        return "a daemonic process cannot start workers"
    with suppress(OSError), open(LOCKS) as locks:
        if any(line.split()[1:5:3] == ["POSIX", str(os.getpid())] for line in locks):
            return LOCKED
    if not all(os.access(f"{DESCRIPTORS}/{fd}", os.R_OK, effective_ids=True) for fd in files):
        return "this process has a file open that workers cannot open again"
    handles = signal.getsignal(signal.SIGCHLD)
    if handles is not signal.SIG_DFL and getattr(handles, "__module__", "") != _utils.signal_handling.__name__:
        return HANDLED
    if isinstance(loader.sampler, Iterator) or isinstance(loader.batch_sampler, Iterator):
        return ONCE
    found = [*reading.objects()]
    if any(isinstance(each, threading.Thread) and each.is_alive() for each in found):
        return THREADED
    if any(random_state.of(each) is not None and each is not SHARED_RANDOM for each in found):
        return RANDOM
    for each in found:
        with suppress(Exception):  # a closed one raises, and so do classes that only look like a file
            fd = type(each).fileno(each)  # an instance's own may be a remote server's, or C's
            if fd > STREAMS and (stat.S_ISSOCK(mode := os.fstat(fd).st_mode) or stat.S_ISFIFO(mode)):
                return f"the script holds an open {type(each).__name__}, which workers would share"
    return WRITES if any(map(_writes, found)) else None


def _writes(value: Any) -> bool:
    """Return True if ``value`` is a file that may be written to."""
    if issubclass(type(value), io.IOBase):
        with suppress(Exception):  # it is closed, or lies in memory
            return bool(value.writable() and value.fileno() > STREAMS)
    return False


raised: list[int] = []
"""The process's own limit of descriptors, once for each loader that needs more."""


def raise_limit() -> Callable[[], None]:
    """Allow this process as many descriptors as it may have. Returns a function that undoes it, once none needs it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised.append(raised[0] if raised else soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def undo() -> None:
        own = raised.pop()
        if not raised:
            resource.setrlimit(resource.RLIMIT_NOFILE, (own, hard))

    return undo


@dataclass
class Start:
    """The first that a worker does, in the place of the user's ``worker_init_fn``, which follows.

    Attributes:
        calls: what knobs do in it, and the user's own function, which never runs if the user has no workers.
        alone: the user has no workers: what this one cannot do is done in the training process.
        files: that are open before the worker is forked; other ways to start inherit none.
    """

    calls: Sequence[Callable[[int], object]]
    alone: bool
    files: dict[int, tuple[int, os.stat_result]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return Start, (self.calls, self.alone)

    def __call__(self, worker: int) -> None:
        for fd, (position, status) in self.files.items():
            if _is_of(fd, status):
                _open_again(fd, position)
        if self.alone:
            for number in SCRIPTS_SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            ForkingPickler.register(torch.UntypedStorage, sent)
            replace(_utils.fetch._MapDatasetFetcher, "fetch", guarded)
            replace(_utils.fetch._IterableDatasetFetcher, "fetch", passed_on)
        for call in self.calls:
            call(worker)


def _is_of(fd: int, status: os.stat_result) -> bool:
    """Return True if ``fd`` is still of the file; else it was closed since, and may be a pipe of this worker now."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(fd), status)
    return False


def _open_again(fd: int, position: int) -> None:
    """Give ``fd`` a file description, and so a position, that no other process moves."""
    flags, inheritable = fcntl.fcntl(fd, fcntl.F_GETFL), os.get_inheritable(fd)
    again = os.open(f"{DESCRIPTORS}/{fd}", flags & ~(os.O_NOFOLLOW | os.O_TMPFILE))  # no others say how it came to be
    os.lseek(again, position, os.SEEK_SET)
    os.dup2(again, fd, inheritable=inheritable)
    os.close(again)


# In the training process ----------------------------------------------------------------------------------------------


class Stalled(Exception):
    """Workers have not sent a batch for long."""


class LateProcess(ForkProcess):
    """A worker that is forked when the first batch is asked for: what the script changes before that is in it."""

    def start(self) -> None:
        """Wait for `begin`."""

    def begin(self) -> None:
        """Start."""
        super().start()

    @property
    def pid(self) -> int:
        """Return its number; 0 before it is started, which PyTorch's handler of signals takes."""
        return self.ident or 0

    def is_alive(self) -> bool:
        """Return True while it runs."""
        return self.ident is not None and super().is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, if it was started."""
        if self.ident is not None:
            super().join(timeout)


class LateContext(ForkContext):
    """Makes such workers."""

    Process = LateProcess


class LateIterator(_MultiProcessingDataLoaderIter):
    """With workers, but reads its order from the first batch on and to its end when that is asked for, as without them.

    PyTorch's own reads ahead as soon as it is made. Random numbers that another loader or the loop draws in between
    would swap places with those of the order. A sampler may draw some more at its end, which a loop need not reach.
    An order with a generator of its own is read ahead as long as nobody else draws from that.
    """

    _is_idle = False
    _batches = math.inf
    """Of the order, as far as is known."""
    _held: Sequence[tuple[Any, Any]] = ()
    """What it held when the pass began."""
    _ordered: Sequence[tuple[Any, Any]] = ()
    """What the user's samplers held when indices were last drawn."""
    _silent = 0.0
    """Seconds without a batch."""
    _alone = False
    _draws: Sequence[tuple[int, Any]] = ()
    """The batches for which the order's own generator was drawn from, and its state before."""
    reading: Reading
    """What the script may change."""
    orders: Sequence[Any] = ()
    """Samplers of the user's own: the script may change them, too."""
    goes_on = False
    """If workers cannot, the rest of the pass is read in this process."""
    refuse: Callable[[str], object]
    """Gets the reason why later passes have no workers."""
    may_start: Callable[[], bool] | None = None
    """Asked before late workers start: if they may not, this process reads. None if they run already."""

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._is_idle, self._asked, self._owner = True, dict[int, Any](), os.getpid()
        order, begun = self._index_sampler, self._sampler_iter
        own = getattr(getattr(order, "sampler", order), "generator", None) or loader.generator
        self._source: Any = own if isinstance(own, torch.Generator) else None
        self._drawn: Any = None
        self._shared = False
        """True once others have drawn from the order's own generator."""
        with suppress(Exception):  # a sampler of the user's own
            self._batches = len(order)
        self._index_sampler = begun  # it is not begun again: it may draw random numbers at once
        super()._reset(loader, first_iter)
        self._index_sampler = order

    def _try_put_index(self) -> None:
        if self._drawn is not None:
            self._shared = self._shared or not torch.equal(self._source.get_state(), self._drawn)
        if not self._is_idle and not self._shared and self._send_idx < self._batches:
            super()._try_put_index()

    def _next_index(self) -> Any:
        source: Any = self._source
        before: Any = None if source is None else source.get_state()
        index = self._asked[self._send_idx] = super()._next_index()  # type: ignore[no-untyped-call]
        if source is not None:
            self._drawn = source.get_state()
            if not torch.equal(self._drawn, before):
                self._draws = [*self._not_taken(), (self._send_idx, before)]
        return index

    def _not_taken(self) -> list[tuple[int, Any]]:
        return [draw for draw in self._draws if draw[0] >= self._rcvd_idx]

    def _shutdown_workers(self) -> None:
        """End them. What was drawn for batches that the loop has left goes back to the order's own generator."""
        left, self._draws = self._not_taken(), ()
        if left and torch.equal(self._source.get_state(), self._drawn):
            self._source.set_state(left[0][1])
        if self._owner == os.getpid():
            super()._shutdown_workers()
            for worker in getattr(self, "_workers", ()):  # one that hangs does not answer SIGTERM
                if worker.is_alive():
                    worker.kill()

    def _try_get_data(self, timeout: float = CHECKED_EVERY) -> Any:
        found, data = super()._try_get_data(timeout)  # type: ignore[no-untyped-call]
        self._silent = 0.0 if found else self._silent + timeout
        if self._silent >= PATIENCE and self.goes_on:
            raise Stalled
        return found, data

    def _next_data(self) -> Any:
        number = self._rcvd_idx
        self._asked.pop(number - 1, None)
        if self._owner != os.getpid():  # a fork reads on by itself
            self._draws, self._alone, self._is_idle = (), True, False
        if self._is_idle:
            self._is_idle = False
            self._begin()
        elif not self._alone:
            self._look_for_changes()
        if not self._alone:
            try:
                if self._rcvd_idx == self._send_idx:  # all that was read is used up
                    super()._try_put_index()
                return super()._next_data()  # type: ignore[no-untyped-call]
            except Stalled:
                self._read_on(STALLED.format(PATIENCE))
            finally:
                self._ordered = held(self.orders)  # as it is once indices were drawn
        if number not in self._asked:
            self._send_idx = number
            self._next_index()
        self._rcvd_idx += 1
        return Left(self._asked[number]).read(self)

    def _look_for_changes(self) -> None:
        """Read on without workers if the script has changed the data set since they began; a stream cannot."""
        now = self.reading.held()
        if same(self._held, now) and same(self._ordered, held(self.orders)):
            return
        if self.goes_on:
            self._read_on(CHANGED)
        else:
            self._held = now
            self.refuse(UNSEEN)

    def _read_on(self, reason: str) -> None:
        """Read the rest without workers, for that ``reason``."""
        self._draws, self._alone = (), True  # its order is read on from here
        self._shutdown_workers()
        self.refuse(reason)

    def _begin(self) -> None:
        """Let the workers begin to read."""
        self._held = self.reading.held()
        if self.may_start is not None:
            self._alone = not self.may_start()
            if self._alone:
                return
            workers: Any = self._workers
            try:
                for worker in workers:
                    worker.begin()
            except OSError as error:
                self._read_on(f"no process could be started ({error})")
                return
            handling._remove_worker_pids(id(self))
            handling._set_worker_pids(id(self), tuple(worker.pid for worker in workers))
        children.difference_update(self._workers)  # the script's own waits and forks know nothing of them
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # threads get no signals
        for queue in self._index_queues:
            queue._start_thread()  # type: ignore[attr-defined]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for _ in range(1 if self._source is not None else self._prefetch_factor * self._num_workers):
            self._try_put_index()

    def _process_data(self, data: Any, *worker: Any) -> Any:
        if self._source is not None and self._send_idx - self._rcvd_idx + 1 < self._prefetch_factor * self._num_workers:
            self._try_put_index()
        data = super()._process_data(data, *worker)  # type: ignore[no-untyped-call]
        if isinstance(data, Recorded):
            self.refuse(RECORDS)
            data = data.batch
        if isinstance(data, Raised):
            raise data.error()
        return data.read(self) if isinstance(data, Left) else data


running: weakref.WeakSet[LateIterator] = weakref.WeakSet()


def _end_all() -> None:
    """End the workers of passes that are not over when this process ends."""
    for iterator in list(running):
        iterator._shutdown_workers()


class EarlyIterator(_SingleProcessDataLoaderIter):
    """Without workers, but begins to read its order when it is made, as with them."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        order = iter(self._index_sampler)  # PyTorch's with workers begins it twice
        self._sampler_iter = itertools.chain(list(itertools.islice(order, 1)), order)


class Workers(Change):
    """A loader that iterates with other attributes than it has: those that a script reads stay its own.

    Whether it may is looked at whenever it starts workers: ``note`` gets the reason if it may not.
    """

    def __init__(self, loader: DataLoader[Any], attributes: dict[str, Any], note: Callable[[str], None]) -> None:
        self._loader, self.attributes, self._note = weakref.ref(loader), attributes, note
        self._firsts = attributes.pop(FIRST)
        self._users, self._way = loader.num_workers, type(loader)._get_iterator
        self._why_not: str | None = None
        """Why workers that were to start could not; None if they could."""
        self._refused: str | None = None
        restore = contextlib.ExitStack()
        restore.callback(served(loader, **{ITERATOR: self._iterator}).undo)
        if attributes.get(NUM_WORKERS, 0) > self._users:
            restore.callback(raise_limit())
        super().__init__(restore.close, lambda: self._why_not)

    def _iterator(self) -> Any:
        """Begin to iterate."""
        loader: Any = self._loader()
        ready = copied(loader, **self.attributes)
        own, way = vars(ready), type(loader)._get_iterator
        if loader.num_workers != self._users or way is not self._way:  # the script has chosen otherwise since
            return way(loader)
        if ready.num_workers == 0 < self._users:
            return EarlyIterator(ready)
        users = [loader.worker_init_fn] if self._users and loader.worker_init_fn else []
        start = Start([*self._firsts, *users], self._users == 0)
        if self._firsts or ready.num_workers > self._users:
            own[FIRST] = start
        if ready.num_workers <= self._users:
            return way(ready)
        stream = isinstance(loader.dataset, IterableDataset)  # it is iterated at once, as without workers
        late = self._users == 0 and not stream and not ready.pin_memory
        reading = Reading(loader.dataset, loader.collate_fn)
        if not late and not self._may_start(ready, start, reading):
            return way(loader)
        if self._users > 0:
            return way(ready)
        own.update({"in_order": True} | ({MULTIPROCESSING_CONTEXT: LateContext()} if late else {}))
        iterator = LateIterator(ready)
        iterator.goes_on, iterator.refuse = not stream, self._refuse
        iterator.reading = reading
        orders = (loader.batch_sampler, loader.sampler)
        iterator.orders = [each for each in orders if not type(each).__module__.startswith("torch.utils.data.")]
        iterator.may_start = partial(self._may_start, ready, start, reading) if late else None
        atexit.unregister(_end_all)  # it is called once, and before what was registered earlier
        atexit.register(_end_all)
        running.add(iterator)
        return iterator

    def _may_start(self, loader: DataLoader[Any], start: Start, reading: Reading) -> bool:
        """Return True if workers of ``loader`` may start now, with ``start``; note why if they may not."""
        start.files = open_files()
        self._why_not = self._refused or why_not_shared(loader, start.files, reading)
        if self._why_not is not None:
            self._note(self._why_not)
        return self._why_not is None

    def _refuse(self, reason: str) -> None:
        self._refused = reason
        self._note(reason)
