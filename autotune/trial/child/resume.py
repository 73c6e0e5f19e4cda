"""How a forked trial gets back to the script that stands below it on the stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Resume(BaseException):
    """Unwinds to the script, which goes on as a trial.

    Attributes:
        listener: `autotune.scripts.hooks.Listener` of the trial.
        script_ended: called when the script came to its end before the trial did; returns the exit code.
    """

    def __init__(self, listener: Any, script_ended: Callable[[Any], int]) -> None:
        super().__init__()
        self.listener, self.script_ended = listener, script_ended
