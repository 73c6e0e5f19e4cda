"""The zygotes of a tuning run: one for each allocator, since an allocator is chosen before a process starts."""

from __future__ import annotations

import time

from autotune.core.errors import UserCodeError
from autotune.trial.parent.event_loop import EventLoop
from autotune.trial.parent.setup import TrialSetup
from autotune.trial.parent.zygote_process import ZygoteProcess

LOAD_SECONDS = 120.0


class Zygotes:
    """Starts a zygote when a trial first needs it, and again where it has ended."""

    def __init__(self, setup: TrialSetup, loop: EventLoop) -> None:
        self._setup, self._loop = setup, loop
        self._by_allocator: dict[str, ZygoteProcess] = {}

    def get(self, allocator: str, deadline: float) -> ZygoteProcess:
        """The zygote for ``allocator``, with the task loaded; it may take until ``deadline`` on the monotonic clock.

        Raises:
            UserCodeError: the task could not be imported or its dataset not built.
        """
        zygote = self._by_allocator.get(allocator)
        if zygote is None or zygote.gone:
            setup = self._setup
            zygote = ZygoteProcess.launch(setup.environment(allocator), setup.origin, self._loop)
            self._by_allocator[allocator] = zygote
            self._load(zygote, deadline)
        return zygote

    def close(self) -> None:
        """End all of them and everything below them."""
        for zygote in self._by_allocator.values():
            zygote.close()
        self._by_allocator.clear()

    def _load(self, zygote: ZygoteProcess, deadline: float) -> None:
        task, scratch = str(self._setup.task), str(self._setup.paths.root)
        seconds = max(0.0, min(LOAD_SECONDS, deadline - time.monotonic()))
        reply = zygote.ask("load", seconds, task=task, seed=self._setup.seed, scratch=scratch)
        if reply is None:
            timed_out, code = not zygote.gone, zygote.kill()
            how = f"no end within {seconds:.0f} s" if timed_out else f"the process ended with exit code {code}"
            raise UserCodeError(f"{task}: {how} while it was imported and its dataset built", zygote.tail())
        if reply["error"] is not None:
            error = reply["error"]
            raise UserCodeError(f"{task}: {error['type']}: {error['text']}", error["traceback"])
