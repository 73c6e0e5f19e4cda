"""Keep the global batch of a script whose processes share the work: each process's loader gets its share.

Scripts written for torchrun state the batch of one process, so that N processes train on N times as much at once. The
share is put in force when the script builds its loader: everything that it derives from the loader (its length, the
steps of a schedule) is right from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


@dataclass(frozen=True)
class SharedBatch:
    """The batch of one process, and the share of each of several.

    Attributes:
        batch: the one that the script states.
        share: of each process.
        samples: of the dataset that the script trains on; loaders over others are left alone.
    """

    batch: int
    share: int
    samples: int

    def building(self, original: Callable[..., None]) -> Callable[..., None]:
        """Return ``DataLoader.__init__`` with the share in place of the batch."""

        def build(
            loader: DataLoader[Any], dataset: Any, batch_size: int | None = 1, *arguments: Any, **options: Any
        ) -> None:
            if batch_size == self.batch and self.samples == _samples(dataset):
                batch_size = self.share
            original(loader, dataset, batch_size, *arguments, **options)

        return build

    def why_not(self, loader: Any) -> str | None:
        """Return why the processes would not train on the global batch that was tuned; None if they do.

        Args:
            loader: that a process trains on.
        """
        import torch.distributed as dist

        from autotune.runtime.loaders import stated_batch

        world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        processes, own = self.batch // self.share, stated_batch(loader)
        if world == processes and own == self.share:
            return None
        found = f"it would train on batches of {own}" if world == processes else f"its process group has {world}"
        return (
            f"{processes} processes were tuned to share batches of {self.batch} of {self.samples} samples, but this is"
            f" not so here: {found}. Start it as one process (autotune run --nproc 1), or tune it as it is started now"
        )


def _samples(dataset: Any) -> int | None:
    from autotune.runtime.loaders import length

    try:
        return length(dataset)
    except Exception:  # whatever is wrong with a dataset, its loader reports it
        return None
