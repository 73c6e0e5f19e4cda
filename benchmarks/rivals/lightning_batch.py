"""What a user writes around a task file to let Lightning find the batch size.

    python -m benchmarks.rivals.lightning_batch TASK SETTINGS LARGEST

``SETTINGS`` is JSON; the batch size found is the last word on stdout. `Tuner.scale_batch_size` doubles the batch until
memory is exhausted or ``LARGEST`` is reached; it does not measure speed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from types import ModuleType
from typing import Any

import lightning.pytorch as lightning
from lightning.pytorch.tuner import Tuner

from benchmarks.rivals.trial import load, loader_of, optimizer_of


class Module(lightning.LightningModule):
    """The task's model, loss and optimizer."""

    def __init__(self, task: ModuleType) -> None:
        super().__init__()
        self.task, self.model = task, task.build_model()

    def training_step(self, batch: Any, _: int) -> Any:
        return self.task.compute_loss(self.model, batch)

    def configure_optimizers(self) -> Any:
        return optimizer_of(self.task, self.model)


class Data(lightning.LightningDataModule):
    """The task's dataset with today's loader; ``batch_size`` is what the tuner sets."""

    def __init__(self, task: ModuleType, settings: dict[str, Any]) -> None:
        super().__init__()
        self.task, self.settings, self.batch_size = task, settings, settings["batch_size"]
        self.dataset = task.build_dataset()

    def train_dataloader(self) -> Any:
        return loader_of(self.task, self.dataset, self.settings | {"batch_size": self.batch_size})


def find(task: ModuleType, settings: dict[str, Any], largest: int) -> int:
    """The batch size that the tuner ends with; its other options are its defaults."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    own = settings["batch_size"]
    trials = (largest // own).bit_length()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, default_root_dir=folder, **quiet)
        data = Data(task, settings)
        found = Tuner(trainer).scale_batch_size(Module(task), datamodule=data, init_val=own, max_trials=trials)
    assert found is not None
    return found


if __name__ == "__main__":
    print(find(load(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])))
