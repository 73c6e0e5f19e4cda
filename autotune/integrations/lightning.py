"""For Lightning: a callback that warns once where training stays well below the profile's rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.integrations.rate_watch import RateWatch
from autotune.runtime.loader import stated_batch

try:
    from lightning.pytorch import Callback
except ImportError:  # the older name of the same package
    from pytorch_lightning import Callback


class RateCallback(Callback):
    """``Trainer(callbacks=[RateCallback("profile.yaml")])``. The trainer's settings stay what they are.

    Args:
        profile: the profile; else ``AUTOTUNE_PROFILE``, else the best match for this machine and ``target``.
        target: what was tuned; the running script's name if None.
        level: the profile's level; else ``AUTOTUNE_LEVEL``, else what the profile recommends.
    """

    def __init__(
        self, profile: str | Path | None = None, *, target: str | None = None, level: str | None = None
    ) -> None:
        self._wanted = (profile, target, level)
        self._watch: RateWatch | None = None
        self._batches = self._steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Look for the profile, on the main process."""
        self._watch = RateWatch(*self._wanted, "lightning") if trainer.is_global_zero else None
        self._batches, self._steps = 0, trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count batches up to an optimizer step."""
        self._batches += 1
        if self._watch is not None and trainer.global_step != self._steps:
            size = stated_batch(trainer.train_dataloader)
            self._watch.step(None if size is None else size * self._batches * trainer.world_size)
            self._batches, self._steps = 0, trainer.global_step

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Not training."""
        self._pause()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Loaders start anew."""
        self._pause()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Not training. Nothing of this callback goes into the checkpoint."""
        self._pause()

    def _pause(self) -> None:
        if self._watch is not None:
            self._watch.pause()
