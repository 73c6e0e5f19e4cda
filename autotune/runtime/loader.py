"""Data loaders: legal arguments, a faithful rebuild, and batches on the right device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from autotune.core.settings import Settings
from autotune.runtime.batches import GlobalBatches, Plan, counted

Mover = Callable[[Any], Any]


@dataclass
class Progress:
    """Where training is: written by the loader being iterated, read by backward, step and accumulate."""

    weight: float = 1.0
    """Weight of the current micro-batch's loss."""
    boundary: bool = True
    """True where the optimizer steps after the current micro-batch."""
    steps: int = 0
    """Optimizer steps so far, those that a scaler skipped included."""


def arguments(loader: DataLoader[Any], settings: Settings, device: torch.device, workers: int) -> dict[str, Any]:
    """`DataLoader` arguments for ``settings`` that keep everything else of ``loader``; legal pairs only.

    Batch and sampler are left to the caller. Without workers PyTorch refuses what only serves them.
    """
    kept: dict[str, Any] = {
        "dataset": loader.dataset,
        "collate_fn": loader.collate_fn,
        "generator": loader.generator,
        "num_workers": workers,
        "pin_memory": settings.pin_memory and device.type != "cpu",
    }
    if workers > 0:
        kept |= {
            "prefetch_factor": settings.prefetch_factor or loader.prefetch_factor or 2,
            "persistent_workers": settings.persistent_workers,
            "worker_init_fn": loader.worker_init_fn,
            "timeout": loader.timeout,
            "multiprocessing_context": loader.multiprocessing_context,
        }
    if not getattr(loader, "in_order", True):  # from torch 2.6 on
        kept["in_order"] = False
    return kept


def own_arguments(loader: DataLoader[Any], device: torch.device) -> dict[str, Any]:
    """The user's own arguments, for a rebuild that only shares out the data."""
    settings = Settings(
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        pin_memory=loader.pin_memory,
    )
    return arguments(loader, settings, device, loader.num_workers)


def untouchable(loader: DataLoader[Any]) -> str | None:
    """Why ``loader`` cannot be rebuilt without guessing, or None."""
    if type(loader) is not DataLoader:
        return f"{type(loader).__name__} is a subclass of DataLoader"
    if loader.batch_size is None:
        return "it has a batch_sampler of its own" if loader.batch_sampler is not None else "it does not batch"
    return None


def is_stream(loader: DataLoader[Any]) -> bool:
    """True for an iterable dataset, which has no indices."""
    return isinstance(loader.dataset, IterableDataset)


def shards_itself(dataset: object) -> bool:
    """True where an iterable dataset asks which worker it runs in; else every worker would repeat all of it."""
    names: set[str] = set()
    for owner in type(dataset).__mro__:
        code = getattr(vars(owner).get("__iter__"), "__code__", None)
        names.update(getattr(code, "co_names", ()))
    return "get_worker_info" in names


def stream_workers(loader: DataLoader[Any], wanted: int) -> tuple[int, str | None]:
    """Workers for a stream, and why not the ``wanted`` number."""
    if wanted == loader.num_workers or shards_itself(loader.dataset):
        return wanted, None
    reason = "the iterable dataset does not share its samples out among workers (get_worker_info)"
    return loader.num_workers, f"kept at {loader.num_workers}: {reason}"


def owns_shard(loader: DataLoader[Any], world: int) -> bool:
    """True where the script shares the data out itself: its batch size is per process."""
    return isinstance(loader.sampler, DistributedSampler) and loader.sampler.num_replicas == world > 1


def mover(device: torch.device, *, channels_last: bool, non_blocking: bool) -> Mover | None:
    """A function that puts a batch on ``device``; None where batches are right as they come."""
    if device.type == "cpu" and not channels_last:
        return None

    def move_tensor(tensor: Tensor) -> Tensor:
        if channels_last and tensor.dim() == 4 and tensor.is_floating_point():
            return tensor.to(device, non_blocking=non_blocking, memory_format=torch.channels_last)
        return tensor.to(device, non_blocking=non_blocking)

    return lambda batch: _mapped(batch, move_tensor, device)


def _mapped(value: Any, move: Callable[[Tensor], Tensor], device: torch.device) -> Any:
    """``value`` with every tensor moved; containers keep their class, other objects move themselves if they can."""
    if isinstance(value, Tensor):
        return move(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, move, device) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, move, device) for item in value)
    if type(value) is dict:
        return {key: _mapped(item, move, device) for key, item in value.items()}
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, Mapping):
        return type(value)({key: _mapped(item, move, device) for key, item in value.items()})  # type: ignore[call-arg]
    return value


class PreparedLoader:
    """The user's loader, rebuilt where that helps, with batches on the right device; all else is passed through.

    Attributes:
        loader: the `DataLoader` that is really iterated.
        plan: how batches are dealt out; None where the loader's batches are used whole.
    """

    def __init__(
        self, loader: DataLoader[Any], mover: Callable[[], Mover | None], progress: Progress, plan: Plan | None = None
    ) -> None:
        self.loader, self.plan = loader, plan
        self.on_start: Callable[[], None] = lambda: None
        """Called when a pass over accumulated batches begins."""
        self._mover, self._progress = mover, progress
        self._epoch: int | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not there yet while unpickling
            raise AttributeError(name)
        return getattr(self.loader, name)

    @property
    def batch_size(self) -> int | None:
        """Most samples of one micro-batch."""
        return self.loader.batch_size if self.plan is None else self.plan.micro

    @property
    def sampler(self) -> Any:
        """What decides the order; it has ``set_epoch`` where processes share the data."""
        return (
            self.loader.batch_sampler if isinstance(self.loader.batch_sampler, GlobalBatches) else self.loader.sampler
        )

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass. Done by itself for each pass where nobody calls it."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        self._next_epoch()
        if self.plan is None or (self.plan.accumulation == 1 and self.plan.world == 1):
            move = self._mover()
            return iter(self.loader) if move is None else map(move, self.loader)
        return self._micro_batches()

    def _next_epoch(self) -> None:
        """Move on to a new order, unless the user has done so since the last pass."""
        sampler = self.sampler
        if not hasattr(sampler, "set_epoch"):
            return
        epoch = getattr(sampler, "epoch", 0)
        if epoch == self._epoch:
            epoch += 1
            sampler.set_epoch(epoch)
        self._epoch = epoch

    def _micro_batches(self) -> Iterator[Any]:
        progress, move = self._progress, self._mover()
        before = progress.weight, progress.boundary
        self.on_start()
        try:
            for batch, (weight, boundary) in self._numbered():
                # Set before each batch, not once: another loader may have been iterated since.
                progress.weight, progress.boundary = weight, boundary
                yield batch if move is None else move(batch)
        finally:
            progress.weight, progress.boundary = before

    def _numbered(self) -> Iterable[tuple[Any, tuple[float, bool]]]:
        batches = self.loader.batch_sampler
        if isinstance(batches, GlobalBatches):
            return zip(self.loader, batches.steps(), strict=False)
        assert self.plan is not None
        return _last_is_boundary(zip(self.loader, counted(self.plan.accumulation), strict=False))


def _last_is_boundary(items: Iterable[tuple[Any, tuple[float, bool]]]) -> Iterator[tuple[Any, tuple[float, bool]]]:
    """Look one batch ahead, since a stream does not say when it ends."""
    iterator = iter(items)
    held = next(iterator, None)
    while held is not None:
        following = next(iterator, None)
        batch, (weight, boundary) = held
        yield batch, (weight, boundary or following is None)
        held = following
