"""Signals and the surrounding job of the process that tunes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from autotune.errors import Interrupted, UsageError


def check_not_a_rank() -> None:
    """Raise `UsageError` in a rank of a distributed job: a run is started once (huggingface/transformers#18609)."""
    if os.environ.get("WORLD_SIZE", "1") != "1" or "RANK" in os.environ:
        raise UsageError(
            "tune was started as one rank of a distributed job (RANK is set). Start it once, without torchrun or"
            " mpiexec: it starts several processes by itself where that pays."
        )


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """SIGINT and SIGTERM raise `Interrupted` once, in the main thread; later ones wait for the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, _: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(signum)

    before = {signum: signal.signal(signum, interrupt) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
