"""How a forked trial gets back to the script that stands below it on the stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Resume(BaseException):
    """Unwinds to the script, which goes on as a trial.

    Attributes:
        watcher: `autotune.script.watch.Watcher` of the trial.
        script_ended: told that the script came to its end before the trial did; returns the exit code.
    """

    def __init__(self, watcher: Any, script_ended: Callable[[Any], int]) -> None:
        super().__init__()
        self.watcher, self.script_ended = watcher, script_ended
