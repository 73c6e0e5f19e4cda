"""Ends a process that takes no optimizer step any more, and shows where it stands.

A rank that hangs keeps the others waiting for as long as their collectives do: half an hour with gloo, for ever with
MPI. Here each process watches itself, and the launcher ends all with the first that leaves.
"""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping

from torch.optim.optimizer import register_optimizer_step_post_hook

from autotune.environment import TIMEOUT_VARIABLE

FAREWELL_SECONDS = 1.0
"""Between a process's last words and its end: the launcher ends the others with it, and they have words to say too."""
BACKSTOP_SECONDS = 10.0
"""What hangs without letting Python run is ended this much later, by a timer that needs no Python."""
_running: list[Callable[[], None]] = []
"""How to stop the watch of this process, where there is one."""


def seconds_of(environment: Mapping[str, str]) -> float | None:
    """Seconds that ``environment`` asks for; None where it asks for none, or for what is no duration."""
    try:
        seconds = float(environment.get(TIMEOUT_VARIABLE, ""))
    except ValueError:
        return None
    return seconds if 0 < seconds < math.inf else None


def watch(seconds: float, end: Callable[[float], None] | None = None) -> Callable[[], None]:
    """From now on, end this process where no optimizer steps for ``seconds``. Returns how to stop watching.

    A process is watched once: where a watch is on already, it is left as it is.

    Args:
        seconds: the longest time between two steps, and until the first.
        end: called then, with ``seconds``; by default prints the stacks of all threads and leaves with exit code 1.
    """
    if _running:
        return _running[0]
    last, done = time.monotonic(), threading.Event()

    def stepped(*_: object) -> None:
        nonlocal last
        last = time.monotonic()

    def guard() -> None:
        left = seconds
        while left > 0:
            faulthandler.dump_traceback_later(left + BACKSTOP_SECONDS, exit=True, file=sys.__stderr__ or sys.stderr)
            if done.wait(left):
                faulthandler.cancel_dump_traceback_later()
                return
            left = last + seconds - time.monotonic()
        (end or _end)(seconds)

    def stop() -> None:
        _running.clear()
        hook.remove()
        done.set()
        watching.join()

    hook = register_optimizer_step_post_hook(stepped)
    watching = threading.Thread(target=guard, name="autotune-watchdog", daemon=True)
    watching.start()
    _running.append(stop)
    return stop


def _end(seconds: float) -> None:
    """All at once, so that the words of several processes do not mix."""
    rank = os.environ.get("RANK", "0")
    with tempfile.TemporaryFile() as stacks:
        faulthandler.dump_traceback(stacks)
        stacks.seek(0)
        words = f"autotune: rank {rank} took no optimizer step for {seconds:g} s (--timeout); its threads:\n"
        os.write(2, words.encode() + stacks.read())
    time.sleep(FAREWELL_SECONDS)
    os._exit(1)
