"""Progress bars. Nobody looks at a trial's, and their threads would forbid a fork."""

from __future__ import annotations

from typing import Any

from autotune.scripts.adapters.adapter import Adapter


def _no_monitor(module: Any) -> None:
    """Leave out the thread that redraws bars which nobody updates; it starts with the first bar."""
    module.tqdm.monitor_interval = 0


class StillThread:
    """In place of the thread that redraws a display of rich ten times a second."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        """Take what rich gives."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def join(self) -> None:
        """Do nothing."""


def _no_display(module: Any) -> None:
    """Let displays of rich be started and updated all the same, but draw nothing."""

    def start(display: Any, refresh: bool = False) -> None:
        display.auto_refresh = False

    def refresh(display: Any) -> None:
        """Draw nothing."""

    module.Live.start, module.Live.refresh, module._RefreshThread = start, refresh, StillThread


PROGRESS_BARS = Adapter(packages=("tqdm", "rich"), changes={"tqdm.std": _no_monitor, "rich.live": _no_display})
