"""Data loaders: changed in place, so that they stay the user's own; what cannot be kept exactly is left alone."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
from collections.abc import Callable, Sized
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from autotune.knobs.change import Change, Training
from autotune.knobs.settings import KNOBS, Settings
from autotune.runtime.loader_workers import Left, Start, open_files, raise_limit, why_not_shared

SETTLED = (SequentialSampler, RandomSampler, WeightedRandomSampler, DistributedSampler)
"""Samplers whose order does not depend on when it is read: loader workers read it ahead of time."""
CONTEXT = "multiprocessing_context"
SLOTS = WORKERS, PASSES, ORDER = "_autotune_workers", "_autotune_passes", "_autotune_order"
"""Attributes of a served loader: what makes its iterators, its passes, and the order that they read."""
PERSISTENT = "without its persistent workers it would draw other random numbers"


class LateIterator(_MultiProcessingDataLoaderIter):
    """With workers, but reads its order from the first batch on, as without them.

    PyTorch's own reads ahead as soon as it is made. Random numbers that another loader or the loop draws in between
    would swap places with those of the order.
    """

    _is_idle = False

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._is_idle = True
        super()._reset(loader, first_iter)

    def _try_put_index(self) -> None:
        if not self._is_idle:
            super()._try_put_index()

    def _next_data(self) -> Any:
        if self._is_idle:
            self._is_idle = False
            for _ in range(self._prefetch_factor * self._num_workers):
                self._try_put_index()
        return super()._next_data()  # type: ignore[no-untyped-call]

    def _process_data(self, data: Any, *worker: Any) -> Any:
        data = super()._process_data(data, *worker)  # type: ignore[no-untyped-call]
        return data.read(self) if isinstance(data, Left) else data


class EarlyIterator(_SingleProcessDataLoaderIter):
    """Without workers, but begins to read its order when it is made, as with them."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        order = self._sampler_iter
        self._sampler_iter = itertools.chain(list(itertools.islice(order, 1)), order)


class Served(DataLoader[Any]):
    """The base of a loader's class in a session: the loader stays the user's own object, and copies are as without."""

    def __iter__(self) -> Any:
        passes = vars(self).get(PASSES)
        return super().__iter__() if passes is None else passes(super().__iter__)

    def _get_iterator(self) -> Any:
        workers = vars(self).get(WORKERS)
        return super()._get_iterator() if workers is None else workers.iterator(self)

    @property
    def _index_sampler(self) -> Any:
        order = vars(self).get(ORDER)
        return super()._index_sampler if order is None else order

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Reduce to the user's own loader, as it is without a session."""
        state = dict(vars(self))
        if WORKERS in state:
            state[WORKERS].attributes.put_back(state)
        return object.__new__, (type(self).__mro__[2],), {n: value for n, value in state.items() if n not in SLOTS}


def served(loader: DataLoader[Any], **slots: Any) -> Change:
    """Let ``loader`` iterate by what is in ``slots``."""
    own, kind = vars(loader), type(loader)
    own.update(slots)
    if not isinstance(loader, Served):
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        loader.__class__ = type(kind.__name__, (Served, kind), names)

    def undo() -> None:
        for name in slots:
            own.pop(name, None)
        if isinstance(loader, Served) and not any(name in own for name in SLOTS):
            loader.__class__ = type(loader).__mro__[2]

    return Change(undo)


class Attributes(Change):
    """Other values of a loader's attributes. To undo it gives back those that the user has not changed since."""

    def __init__(self, loader: DataLoader[Any], attributes: dict[str, Any]) -> None:
        own = vars(loader)
        self._changed = {name: (new, own[name]) for name, new in attributes.items() if own[name] != new}
        own.update({name: new for name, (new, _before) in self._changed.items()})
        super().__init__(lambda: self.put_back(own))

    def put_back(self, own: dict[str, Any]) -> None:
        """Put the user's values back into the attributes ``own``."""
        own.update({name: before for name, (new, before) in self._changed.items() if own.get(name) is new})


class Workers(Change):
    """Other workers of a loader, looked at whenever it starts them: ``note`` gets the reason if it may not."""

    def __init__(self, loader: DataLoader[Any], attributes: dict[str, Any], note: Callable[[str], None]) -> None:
        self._users, self._note = loader.num_workers, note
        self._why_not: str | None = None
        self.attributes = Attributes(loader, attributes)
        restore = contextlib.ExitStack()
        restore.callback(self.attributes.undo)
        restore.callback(served(loader, **{WORKERS: self}).undo)
        if loader.num_workers > self._users:
            restore.callback(raise_limit())
        super().__init__(restore.close, lambda: self._why_not)

    def iterator(self, loader: DataLoader[Any]) -> Any:
        """Begin to iterate ``loader``, or a loader with its attributes."""
        if loader.num_workers <= self._users:
            early = loader.num_workers == 0 < self._users
            return EarlyIterator(loader) if early else DataLoader._get_iterator(loader)
        ready, files = object.__new__(type(loader)), open_files()
        own = vars(ready)
        own.update(vars(loader))
        self._why_not = why_not_shared(loader, files)
        if self._why_not is not None:
            self._note(self._why_not)
            self.attributes.put_back(own)
            return DataLoader._get_iterator(ready)
        own["worker_init_fn"] = Start(loader.worker_init_fn, self._users == 0, files)
        return LateIterator(ready) if self._users == 0 else DataLoader._get_iterator(ready)


def why_left_alone(loader: DataLoader[Any]) -> str | None:
    """Return why nothing but the size of its batches may change in ``loader``, or None."""
    if isinstance(loader.dataset, IterableDataset):
        return "another number of workers would make other batches of an iterable dataset, or restart it"
    kind: Any = type(loader)
    if kind.__iter__ is not DataLoader.__iter__ or kind._get_iterator is not DataLoader._get_iterator:
        return f"{kind.__name__} iterates in its own way"
    if loader._iterator is not None:
        return "its workers run already"
    return why_not_ahead(loader)


def why_not_ahead(loader: DataLoader[Any]) -> str | None:
    """Return why the order of ``loader`` may depend on when it is read, or None."""
    batches: Any = loader.batch_sampler
    if type(batches) is not BatchSampler:
        return f"{type(batches).__name__} decides about each batch when it is read"
    sampler: Any = batches.sampler  # not the loader's: a batch_sampler of the user's replaces that one
    if type(sampler) not in SETTLED:
        return f"{type(sampler).__name__} decides about each sample when it is read"
    own = loader.generator is not None or getattr(sampler, "generator", None) is not None
    return "its order comes from a generator of your own" if own else None


def workers_change(
    loader: DataLoader[Any], settings: Settings, training: Training, note: Callable[[str], None]
) -> Change | str | None:
    """Give ``loader`` the workers of ``settings``. Returns the change, why it is left alone, or None for no change.
    ``note`` gets the reason if it is left alone later."""
    attributes: dict[str, Any] = {}
    for knob in KNOBS:
        if knob.on_loader is not None:
            attributes |= knob.on_loader(settings, loader, training)
    context = attributes.pop(CONTEXT, None)
    own = vars(loader)
    if context is None and all(own.get(name) == value for name, value in attributes.items()):
        return None
    users: Any = loader.multiprocessing_context or multiprocessing
    method = context or users.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    reason = why_left_alone(loader)
    if reason is None and settings.num_workers > 0 and loader.num_workers == 0 and method != "fork":
        reason = f"workers started by {method!r} would run the script's top level again"
    if reason is None and settings.num_workers > 0 and multiprocessing.current_process().daemon:
        reason = "a daemonic process cannot start workers"
    if reason is None and settings.num_workers == 0 and loader.persistent_workers:
        reason = PERSISTENT
    if reason is None and settings.num_workers > loader.num_workers:
        reason = why_not_shared(loader, open_files())
    if reason is not None:
        return reason
    if context is not None:
        attributes[f"_DataLoader__{CONTEXT}"] = multiprocessing.get_context(context)
    return Workers(loader, attributes, note)


def batch_change(loader: DataLoader[Any], batch: int) -> Change:
    """Give ``loader`` batches of ``batch`` samples, of the same sampler."""
    own: Any = loader.batch_sampler
    sampler = BatchSampler(own.sampler, batch, own.drop_last)
    return Attributes(loader, {"batch_sampler": sampler, "batch_size": batch})


def reads_like(loader: DataLoader[Any], other: DataLoader[Any], *, later: bool = False) -> bool:
    """Return True if ``loader`` is ``other`` or built like it: a loop may build its loader anew for each epoch.

    Args:
        later: nobody iterates ``other`` any more, so the data set may have been built anew, too.
    """
    same = type(loader.dataset) is type(other.dataset) if later else loader.dataset is other.dataset
    return loader is other or (same and type(loader.sampler) is type(other.sampler))


def stated_batch(loader: Any) -> int | None:
    """Return the samples of a batch as a loader, or its batch sampler, states them; None if neither does."""
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


def length(value: object) -> int | None:
    """Return ``len(value)``, or None if it has none, or none that can be found out."""
    try:
        return len(value) if isinstance(value, Sized) else None
    except Exception:  # whatever is wrong with a dataset, its loader reports it
        return None


def why_not_resized(loader: DataLoader[Any], batch: int) -> str | None:
    """Return why ``loader`` cannot have batches of ``batch`` samples, or None. Workers of a stream make their own."""
    if isinstance(loader.dataset, IterableDataset):
        known = length(loader.dataset)
        samples = None if known is None else known // max(1, loader.num_workers)
    elif (reason := why_not_ahead(loader)) is not None:
        return f"a DataLoader was left as it is: {reason}"
    else:
        samples = length(loader.sampler)
    too_large = loader.drop_last if samples is None else batch > samples
    return "the batch is larger than an epoch" if too_large else None
