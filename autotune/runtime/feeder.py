"""Prepare the user's loaders: which are trained on, what can be rebuilt, who gets which samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, SequentialSampler

from autotune.core.binding import Place
from autotune.core.settings import Settings
from autotune.runtime import loader as loading
from autotune.runtime.batches import SHARED_BY_SEED, GlobalBatches, Plan, plan, unshareable
from autotune.runtime.binding import Seats
from autotune.runtime.loader import PreparedLoader, Progress
from autotune.runtime.notes import Notes
from autotune.runtime.processes import World, from_rank_zero
from autotune.runtime.switches import raise_open_files


class Feeder:
    """Makes `PreparedLoader`s for one session.

    The first loader is the one trained on, and so is every later one that shuffles. A later one in fixed order is for
    evaluation: every process gets all of it in whole batches, so that its figures need no gathering.
    """

    def __init__(
        self,
        settings: Settings | None,
        level: str | None,
        device: torch.device,
        world: World,
        progress: Progress,
        notes: Notes,
        on_start: Callable[[], None],
    ) -> None:
        self.settings, self.level, self.device, self.world = settings, level, device, world
        self.progress, self.notes, self.on_start = progress, notes, on_start
        self.channels_last = False
        self.place: Place | None = None
        """Where this process is bound, for its loader workers."""
        self._seats: list[Seats] = []
        self._undo: list[Callable[[], None]] = []
        self._trained = False

    def prepare(self, loader: DataLoader[Any]) -> PreparedLoader:
        """``loader``, rebuilt where that is possible without guessing."""
        training = not self._trained or not isinstance(loader.sampler, SequentialSampler)
        self._trained = True
        reason = loading.untouchable(loader)
        if reason is not None:
            return self._untouched(loader, reason)
        if not training:
            return self._prepared(self._whole(loader), None)
        return self._stream(loader) if loading.is_stream(loader) else self._dealt(loader)

    @property
    def unseated(self) -> str | None:
        """Read back: why loader workers are not on their CPUs, or None."""
        return next(filter(None, (seats.refused for seats in self._seats)), None)

    def close(self) -> None:
        """Put the limit of open files back."""
        while self._undo:
            self._undo.pop()()

    def _untouched(self, loader: DataLoader[Any], reason: str) -> PreparedLoader:
        if self.settings is not None:
            for knob in ("num_workers", "batch_size"):
                if getattr(self.settings, knob) != getattr(loader, knob):
                    self.notes.refuse(knob, f"a DataLoader was left as it is: {reason}")
        if self.world.size > 1:
            self.notes.refuse("processes", f"a DataLoader is not shared out: {reason}; every process sees all its data")
        return self._prepared(loader, None)

    def _whole(self, loader: DataLoader[Any]) -> DataLoader[Any]:
        """For evaluation: tuned arguments, the user's own batches."""
        if self.settings is None:
            return loader
        return DataLoader(
            **self._arguments(loader),
            sampler=self._sampler(loader),
            batch_size=loader.batch_size,
            drop_last=loader.drop_last,
        )

    def _stream(self, loader: DataLoader[Any]) -> PreparedLoader:
        """An iterable dataset: micro-batches are smaller batches; sharing it out is the dataset's affair."""
        if self.world.size > 1:
            self.notes.refuse("processes", "an iterable dataset is not shared out: every process reads what it yields")
        if self.settings is None:
            return self._prepared(loader, None)
        dealt = self._plan(loader.batch_size or 1)
        rebuilt = DataLoader(**self._arguments(loader), batch_size=dealt.micro, drop_last=loader.drop_last)
        return self._prepared(rebuilt, dealt)

    def _dealt(self, loader: DataLoader[Any]) -> PreparedLoader:
        """A map-style dataset to train on: global batches, dealt to ranks and micro-steps."""
        own_shard = loading.owns_shard(loader, self.world.size)
        refused = None if own_shard or self.world.size == 1 else unshareable(loader.sampler)
        self.notes.refuse("processes", refused)
        alone = own_shard or refused is not None
        ranks = self.world.size if own_shard else 1
        dealt = self._plan((loader.batch_size or 1) * ranks, force_alone=refused is not None)
        if own_shard:  # the script's own sampler has dealt the ranks already
            dealt = Plan(dealt.batch // ranks, dealt.accumulation)
        if dealt.world == 1 and dealt.accumulation == 1:
            if self.settings is None:
                return self._prepared(loader, None)
            rebuilt = DataLoader(
                **self._arguments(loader), sampler=loader.sampler, batch_size=dealt.batch, drop_last=loader.drop_last
            )
            return self._prepared(rebuilt, None)
        seed = None if alone or self.world.size == 1 else self._agree(loader.sampler)
        batches = GlobalBatches(loader.sampler, dealt, drop_last=loader.drop_last, seed=seed)
        return self._prepared(DataLoader(**self._arguments(loader), batch_sampler=batches), dealt)

    def _plan(self, batch: int, *, force_alone: bool = False) -> Plan:
        world, rank = (1, 0) if force_alone else (self.world.size, self.world.rank)
        dealt, said = plan(batch, self.settings, level=self.level, world=world, rank=rank)
        if said is not None:
            self.notes.say(said)
        return dealt

    def _arguments(self, loader: DataLoader[Any]) -> dict[str, Any]:
        if self.settings is None:
            return loading.own_arguments(loader, self.device)
        workers, refused = self.settings.num_workers, None
        if loading.is_stream(loader):
            workers, refused = loading.stream_workers(loader, workers)
        self.notes.refuse("num_workers", refused)
        if workers > 0:
            undo = raise_open_files().undo
            self._undo += [undo] if undo else []
        arguments = loading.arguments(loader, self.settings, self.device, workers)
        if workers > 0 and self.place is not None:
            self._seats.append(Seats(self.place.workers, loader.worker_init_fn))
            arguments["worker_init_fn"] = self._seats[-1]
        return arguments

    def _sampler(self, loader: DataLoader[Any]) -> Any:
        return None if loading.is_stream(loader) else loader.sampler

    def _agree(self, sampler: Any) -> int | None:
        """Make all ranks draw one order: rank 0's generator state, or, without a generator, a seed from rank 0."""
        generator = getattr(sampler, "generator", None)
        if generator is not None:
            generator.set_state(from_rank_zero(generator.get_state(), self.device))
            return None
        if not isinstance(sampler, SHARED_BY_SEED):
            return None
        seed = torch.tensor(torch.initial_seed() % 2**62)  # asking draws nothing from the user's random numbers
        return int(from_rank_zero(seed, self.device).item())

    def _prepared(self, loader: DataLoader[Any], dealt: Plan | None) -> PreparedLoader:
        def mover() -> loading.Mover | None:  # asked when a pass begins: a model may be prepared after its loader
            return loading.mover(self.device, channels_last=self.channels_last, non_blocking=loader.pin_memory)

        prepared = PreparedLoader(loader, mover, self.progress, dealt)
        prepared.on_start = self.on_start
        return prepared
