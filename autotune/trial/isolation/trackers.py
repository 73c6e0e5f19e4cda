"""Variables that keep experiment trackers off or local, and libraries from asking the network what they have here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

OFF: Mapping[str, str] = {
    "WANDB_MODE": "disabled",
    "SWANLAB_MODE": "disabled",
    "CLEARML_OFFLINE_MODE": "1",
    "NEPTUNE_MODE": "offline",
    "COMET_START_ONLINE": "0",
    "COMET_MODE": "offline",
    "COMET_DISABLE_AUTO_LOGGING": "1",
    "DISABLE_MLFLOW_INTEGRATION": "1",
    "DVC_STUDIO_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""What a tracker that has no such mode writes lands in the trial's room, as everything does."""
FOLDERS: Mapping[str, str] = {
    "WANDB_DIR": "wandb",
    "COMET_OFFLINE_DIRECTORY": "comet",
    "CLEARML_CACHE_DIR": "clearml",
    "TRACKIO_DIR": "trackio",
}
OFFLINE: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DIFFUSERS_OFFLINE": "1",
    "YOLO_OFFLINE": "true",
}
"""Cached models and data sets are taken at once, without waiting for an answer that cannot come."""


def variables(scratch: Path, *, network: bool) -> dict[str, str]:
    """The variables; folders are below ``scratch``."""
    trackers = scratch / "trackers"
    folders = {name: str(trackers / folder) for name, folder in FOLDERS.items()}
    folders["MLFLOW_TRACKING_URI"] = (trackers / "mlflow").as_uri()
    return {**OFF, **folders, **({} if network else OFFLINE)}
