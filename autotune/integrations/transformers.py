"""For Hugging Face's Trainer: a callback that warns once where training stays well below the profile's rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from autotune.integrations.rate_watch import RateWatch


class RateCallback(TrainerCallback):
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

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Look for the profile, on the main process."""
        self._watch = RateWatch(*self._wanted, "transformers") if state.is_world_process_zero else None

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """An optimizer step is done."""
        if self._watch is not None:
            size = state.train_batch_size or args.train_batch_size
            self._watch.step(size * args.gradient_accumulation_steps * args.world_size)

    def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Not training."""
        self._pause()

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Not training."""
        self._pause()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Loaders start anew."""
        self._pause()

    def _pause(self) -> None:
        if self._watch is not None:
            self._watch.pause()
