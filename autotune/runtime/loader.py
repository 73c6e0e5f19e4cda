"""Data loaders: legal arguments for a faithful rebuild, and batches on the right device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from autotune.runtime.datasets import keeps_state
from autotune.runtime.dealing import length
from autotune.runtime.worker_check import asks_for_worker, why_no_fork, why_not_in_workers

Mover = Callable[[Any], Any]
RANK_NAMES = frozenset({"rank", "get_rank", "world_size", "get_world_size", "RANK", "WORLD_SIZE", "process_index"})
"""What code reads that shares its data out among processes itself."""


@dataclass(frozen=True)
class Workers:
    """How many loader workers there will be, and why not as many as asked."""

    count: int
    why_not_more: str | None = None


def workers(loader: DataLoader[Any], wanted: int, method: str = "default") -> Workers:
    """As many of the ``wanted`` workers, started by ``method``, as leave the data as they are."""
    own = loader.num_workers
    reason = None if wanted == own else _workers_stay(loader, wanted, method)
    return Workers(wanted) if reason is None else Workers(own, f"kept at {own}: {reason}")


def _workers_stay(loader: DataLoader[Any], wanted: int, method: str) -> str | None:
    """Why another number of workers might change the data, or None."""
    if is_stream(loader):
        return "another number would make other batches of an iterable dataset, or restart it"
    if 0 not in (wanted, loader.num_workers):
        return None
    if loader.worker_init_fn is not None:
        return "worker_init_fn runs in workers only"
    try:
        adds = loader.num_workers == 0
        reason = asks_for_worker(loader)
        if adds:
            reason = reason or why_no_fork(loader, method) or keeps_state(loader.dataset) or why_not_in_workers(loader)
        return reason
    except Exception as error:  # whatever a dataset does that is looked at, training goes on
        return f"the dataset cannot be looked at: {type(error).__name__}: {str(error)[:200]}"


def arguments(loader: DataLoader[Any], device: torch.device, count: int) -> dict[str, Any]:
    """`DataLoader` arguments for ``count`` workers that keep everything of ``loader``.

    Batches and the generator are left to the caller. Workers outlive an epoch only where the user's do: else they
    would not see a dataset that the script changes between epochs.
    """
    kept: dict[str, Any] = {
        "dataset": loader.dataset,
        "collate_fn": loader.collate_fn,
        "num_workers": count,
        "pin_memory": loader.pin_memory and device.type != "cpu",
    }
    if count > 0:
        kept |= {
            "prefetch_factor": loader.prefetch_factor or 2,
            "persistent_workers": loader.persistent_workers,
            "worker_init_fn": loader.worker_init_fn,
            "timeout": loader.timeout,
            "multiprocessing_context": loader.multiprocessing_context,
        }
    if not getattr(loader, "in_order", True) and loader.num_workers > 0:  # from torch 2.6 on; workers only
        kept["in_order"] = False
    return kept


def untouchable(loader: DataLoader[Any]) -> str | None:
    """Why ``loader`` cannot be rebuilt without guessing, or None."""
    if type(loader) is not DataLoader:
        return f"{type(loader).__name__} is a subclass of DataLoader"
    return "it does not batch" if loader.batch_sampler is None and not is_stream(loader) else None


def stated_batch(loader: Any) -> int | None:
    """Samples of a batch as a loader, or its batch sampler, states them; None where neither does."""
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


def reads_like(loader: DataLoader[Any], other: DataLoader[Any]) -> bool:
    """Whether ``loader`` is ``other``, or built like it: a loop may build its loader anew for each epoch."""
    return loader is other or (loader.dataset is other.dataset and type(loader.sampler) is type(other.sampler))


def is_stream(loader: DataLoader[Any]) -> bool:
    """True for an iterable dataset, which has no indices."""
    return isinstance(loader.dataset, IterableDataset)


def samples_of_epoch(loader: DataLoader[Any]) -> int | None:
    """Samples that batches of one epoch are cut from; of a stream's, those of one worker. None where nobody knows."""
    if not is_stream(loader):
        return length(loader.sampler)
    samples = length(loader.dataset)
    return None if samples is None else samples // max(1, loader.num_workers)


def own_share(loader: DataLoader[Any], world: int) -> str | None:
    """How the script shares this loader's data out among processes itself; None where it does not."""
    if isinstance(loader.sampler, DistributedSampler):
        return "a DistributedSampler" if loader.sampler.num_replicas == world > 1 else None
    if is_stream(loader) and RANK_NAMES & _names(type(loader.dataset)):
        return f"{type(loader.dataset).__name__}, which asks for its rank"
    return None


def _names(kind: type) -> set[str]:
    """Names and texts in the code of a class's methods."""
    codes = [
        code
        for owner in kind.__mro__
        for method in vars(owner).values()
        if (code := getattr(getattr(method, "fget", method), "__code__", None)) is not None
    ]
    found: set[str] = set()
    while codes:
        code = codes.pop()
        found.update(code.co_names, (text for text in code.co_consts if isinstance(text, str)))
        codes += [inner for inner in code.co_consts if hasattr(inner, "co_names")]
    return found


def mover(device: torch.device, *, non_blocking: bool) -> Mover | None:
    """A function that puts a batch on ``device``; None where batches are right as they come."""
    if device.type == "cpu":
        return None
    return partial(moved, device=device, non_blocking=non_blocking)


def moved(value: Any, *, device: torch.device, non_blocking: bool) -> Any:
    """``value`` with every tensor in it on ``device``: containers keep their class, other objects move themselves."""
    again = partial(moved, device=device, non_blocking=non_blocking)
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=non_blocking)
    if callable(getattr(value, "to", None)):  # before tuples: a PackedSequence is one
        return value.to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(again, value))
    if type(value) in (list, tuple):
        return type(value)(map(again, value))
    if isinstance(value, MutableMapping):  # copied, since a defaultdict is not built from a dict alone
        like = copy.copy(value)
        like.update({key: again(item) for key, item in value.items()})
        return like
    if isinstance(value, Mapping):
        return type(value)({key: again(item) for key, item in value.items()})  # type: ignore[call-arg]
    return value
