"""Data loaders: changed in place, so that they stay the user's own; what cannot be kept exactly is left alone."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable, Collection, Sized
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

from autotune.knobs.change import Change, Training
from autotune.knobs.settings import KNOBS, Settings
from autotune.runtime.loader_workers import FIRST, MULTIPROCESSING_CONTEXT, Workers, open_files, why_not_shared
from autotune.runtime.reading import Reading

SETTLED = (SequentialSampler, RandomSampler, WeightedRandomSampler, DistributedSampler)
"""Samplers whose order does not depend on when it is read: loader workers read it ahead of time."""
CONTEXT = "multiprocessing_context"
PERSISTENT = "without its persistent workers it would draw other random numbers"


def why_left_alone(loader: DataLoader[Any], workers: int | None = None) -> str | None:
    """Return why nothing but the size of its batches may change in ``loader``, or why it may not have so many
    ``workers``; None if there is no reason.

    What a sampler, a generator or a data set does is not guessed: tuning compares first steps.
    """
    kind: Any = type(loader)
    if kind.__iter__ is not DataLoader.__iter__ or kind._get_iterator is not DataLoader._get_iterator:
        return f"{kind.__name__} iterates in its own way"
    if loader._iterator is not None:
        return "its workers run already"
    others = workers is not None and max(1, loader.num_workers) != max(1, workers)
    if others and isinstance(loader.dataset, IterableDataset):
        return "another number of workers would make other batches of an iterable dataset"
    return None


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


def asked_of(loader: DataLoader[Any], settings: Settings, training: Training) -> dict[str, dict[str, Any]]:
    """Return the attributes that ``settings`` ask of ``loader``, by the knobs that differ from what it has."""
    own, found = vars(loader), dict[str, dict[str, Any]]()
    for knob in KNOBS:
        asked = {} if knob.on_loader is None else knob.on_loader(settings, loader, training)
        if any(name not in own or own[name] != value for name, value in asked.items()):
            found[knob.name] = asked
    return found


def workers_change(
    loader: DataLoader[Any], asked: Collection[dict[str, Any]], workers: int, note: Callable[[str], None]
) -> Change | str:
    """Iterate ``loader`` with what knobs have ``asked`` for, and so many ``workers``. Returns the change, or why it is
    left alone. ``note`` gets the reason if it is left alone later."""
    attributes = {name: value for each in asked for name, value in each.items()}
    attributes[FIRST] = [each[FIRST] for each in asked if FIRST in each]
    context = attributes.pop(CONTEXT, None)
    users: Any = loader.multiprocessing_context or multiprocessing
    method = context or users.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    reason = why_left_alone(loader, workers)
    if reason is None and workers > 0 and loader.num_workers == 0 and method != "fork":
        reason = f"workers started by {method!r} would run the script's top level again"
    if reason is None and workers == 0 and loader.persistent_workers:
        reason = PERSISTENT
    if reason is None and workers > loader.num_workers:
        reason = why_not_shared(loader, open_files(), Reading(loader.dataset, loader.collate_fn))
    if reason is not None:
        return reason
    if context is not None:
        attributes[MULTIPROCESSING_CONTEXT] = multiprocessing.get_context(context)
    return Workers(loader, attributes, note)


def batch_change(loader: DataLoader[Any], batch: int) -> Change:
    """Give ``loader`` batches of ``batch`` samples, of the same sampler."""
    own: Any = loader.batch_sampler
    before, sampler = (own, loader.batch_size), BatchSampler(own.sampler, batch, own.drop_last)
    known = weakref.ref(loader)  # it ends with the script's last reference

    def give(batches: Any, size: int | None, instead_of: Any) -> None:
        if (loader := known()) is not None and loader.batch_sampler is instead_of:
            vars(loader).update(batch_sampler=batches, batch_size=size)

    give(sampler, batch, own)
    return Change(lambda: give(*before, sampler))


def kinds(loader: DataLoader[Any]) -> tuple[Any, Any]:
    """Return the classes of the data set and of the sampler."""
    return type(loader.dataset), type(loader.sampler)


def reads_like(loader: DataLoader[Any], other: DataLoader[Any], *, later: bool = False) -> bool:
    """Return True if ``loader`` is ``other`` or built like it: a loop may build its loader anew for each epoch.

    Args:
        later: nobody iterates ``other`` any more, so the data set may have been built anew, too.
    """
    return loader is other or (kinds(loader) == kinds(other) and (later or loader.dataset is other.dataset))


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
