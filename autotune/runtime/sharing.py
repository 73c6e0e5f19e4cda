"""How the processes of one training share loaders."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from autotune.runtime import loader as loading
from autotune.runtime.applier import Training
from autotune.runtime.passes import Sharing
from autotune.runtime.processes import agreed, from_rank_zero, store
from autotune.runtime.relay import Relay

EQUAL_PARTS = ("cpu",)
"""Devices on which a ragged batch is cut into parts that weigh the same, so that no loss needs a weight. Elsewhere such
a part might not fit into memory."""
NO_INDICES = "a DataLoader without indices cannot be shared out"


class Sharer:
    """Connects the loaders of one session to those of the other processes."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.device, self.world = training.device, training.world

    def reads_alone(self, loader: DataLoader[Any]) -> bool:
        """True where each process reads this loader for itself."""
        return self.world.size == 1 or loading.own_share(loader, self.world.size) is not None

    def whole(self, loader: DataLoader[Any], why: str = NO_INDICES) -> Sharing | None:
        """All ranks get rank 0's batches: the same training as in one process, and as slow. None where the script
        shares the data out itself."""
        own = loading.own_share(loader, self.world.size)
        if own is not None:
            self.training.notes.say(f"{own} shares the data out itself: its batch is that of one process")
            return None
        self.training.notes.not_applied("processes", f"{why}: all processes train on the same batches")
        return self.dealt(None, ahead=1, deals=lambda: False)

    def dealt(
        self,
        full: int | None,
        *,
        ahead: int,
        deals: Callable[[], bool],
        generator: torch.Generator | None = None,
    ) -> Sharing:
        """Rank 0's order for all. See `Sharing` for ``full`` and ``deals``.

        Args:
            full: samples of a full batch.
            ahead: batches that rank 0 publishes at once.
            deals: whether batches are dealt out.
            generator: that the loader's order is drawn from.
        """
        # The same name on all ranks, and of no other loader: from the system, so that no random numbers are drawn.
        tag = torch.tensor(int.from_bytes(os.urandom(7), "big"))
        name = f"autotune/{int(from_rank_zero(tag, self.device).item()):x}"
        world, rank = self.world.size, self.world.rank
        steps = lambda: self.training.progress.steps  # noqa: E731
        relay = Relay(store(), name, rank, world, steps, ahead, generator)
        return Sharing(relay, world, rank, full, self.device.type in EQUAL_PARTS, deals)

    def same_everywhere(self, number: int) -> bool:
        """Whether all processes have the same ``number``."""
        first = int(from_rank_zero(torch.tensor(number), self.device).item())
        return agreed(first == number, self.device)
