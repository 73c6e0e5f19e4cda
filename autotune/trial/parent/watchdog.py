"""Ends the wait for a trial that shows no sign of life."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from autotune.stats.outcome import BUDGET_OVER
from autotune.trial import process_tree
from autotune.trial.parent.event_loop import EventLoop
from autotune.trial.parent.running_trial import RunningTrial

STACK_DUMP_SECONDS = 0.3


def wait(loop: EventLoop, trial: RunningTrial, done: Callable[[], bool]) -> None:
    """Sleep until ``done`` or the trial's end, or until it counts as hung: then its ``timed_out`` is set."""
    while not done() and not trial.ended:
        left = trial.hung_at - time.monotonic()
        if left <= 0:
            _time_out(loop, trial)
            return
        if loop.wait(left):
            trial.last_sign_at = time.monotonic()  # where all stood still, or the clock jumped, nobody hangs
        if trial.zygote.gone and not trial.ended:
            trial.code = trial.zygote.process.wait()


def _time_out(loop: EventLoop, trial: RunningTrial) -> None:
    if time.monotonic() >= trial.timeouts.deadline:
        trial.timed_out = BUDGET_OVER
    else:
        trial.timed_out = trial.phase
        _dump_stacks(loop, trial)


def _dump_stacks(loop: EventLoop, trial: RunningTrial) -> None:
    """Ask every rank where it is stuck; the answer lands in the log."""
    process_tree.send_signal(signal.SIGUSR1, process_tree.descendants(trial.pid))
    loop.wait_until(lambda: False, STACK_DUMP_SECONDS)
