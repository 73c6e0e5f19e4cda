"""Experiment trackers are off in trials. What one without such a switch writes is private, as everything is."""

from __future__ import annotations

from typing import Any

from autotune.scripts.adapters.adapter import Adapter


class SilentWriter:
    """In place of TensorBoard's writer of events, whose thread would forbid a fork. Nobody reads a trial's curves."""

    def __init__(self, logdir: str, *_arguments: Any, **_options: Any) -> None:
        self._logdir = logdir

    def get_logdir(self) -> str:
        """Return the folder of the events."""
        return self._logdir

    def add_event(self, event: Any) -> None:
        """Drop an event."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def reopen(self) -> None:
        """Do nothing."""


def _no_events(module: Any) -> None:
    module.EventFileWriter = SilentWriter


TRACKERS = Adapter(
    packages=("wandb", "tensorboard", "tensorboardX", "mlflow", "comet_ml", "neptune"),
    variables={
        "WANDB_MODE": "disabled",
        "NEPTUNE_MODE": "offline",
        "COMET_START_ONLINE": "0",
        "COMET_MODE": "offline",
        "COMET_DISABLE_AUTO_LOGGING": "1",
        "DISABLE_MLFLOW_INTEGRATION": "1",
        "DO_NOT_TRACK": "1",
    },
    logs=("WANDB_DIR", "COMET_OFFLINE_DIRECTORY"),
    log_uris={"MLFLOW_TRACKING_URI": "mlflow"},
    changes={
        "tensorboard.summary.writer.event_file_writer": _no_events,
        "tensorboardX.event_file_writer": _no_events,
    },
)
