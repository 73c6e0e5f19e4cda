"""How a forked trial gets back to the script that stands below it on the stack."""

from __future__ import annotations

from typing import Any


class Resume(BaseException):
    """Unwinds to the script, which goes on as a trial.

    Attributes:
        watcher: `autotune.script.watch.Watcher` of the trial.
    """

    def __init__(self, watcher: Any) -> None:
        super().__init__()
        self.watcher = watcher
