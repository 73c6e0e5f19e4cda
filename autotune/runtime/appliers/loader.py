"""Arguments of data loaders."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from autotune.runtime.applier import Applier


class PrefetchFactor(Applier):
    """Batches that each worker prepares ahead."""

    def loader(self, own: DataLoader[Any], arguments: dict[str, Any]) -> None:
        """The tuned number; the user's own where that is for no workers and workers had to stay."""
        if arguments["num_workers"] > 0:
            arguments["prefetch_factor"] = self.value or own.prefetch_factor or 2


class PinMemory(Applier):
    """Page-locked batches."""

    def start(self) -> str | None:
        """Nothing to do yet."""
        idle = self.value and self.training.device.type == "cpu"
        return "no effect: pinned memory only serves copies to an accelerator" if idle else None

    def loader(self, own: DataLoader[Any], arguments: dict[str, Any]) -> None:
        """As tuned, on accelerators."""
        arguments["pin_memory"] = self.value and self.training.device.type != "cpu"


class WorkerStart(Applier):
    """How workers are started."""

    def loader(self, own: DataLoader[Any], arguments: dict[str, Any]) -> None:
        """As tuned, where the user has not chosen himself."""
        chosen = own.multiprocessing_context is not None or own.num_workers > 0
        if self.value != "default" and arguments["num_workers"] > 0 and not chosen:
            arguments["multiprocessing_context"] = self.value
