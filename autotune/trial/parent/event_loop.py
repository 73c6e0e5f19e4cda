"""Where the tuning process sleeps until a child or another machine has something to say."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from typing import Protocol


class Source(Protocol):
    """Anything with a file descriptor."""

    def fileno(self) -> int:
        """The descriptor to watch."""


class EventLoop:
    """Calls back for each source that can be read. It never polls."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, source: Source | int, on_readable: Callable[[], object]) -> None:
        """Call ``on_readable`` whenever ``source`` can be read or has ended."""
        self._selector.register(source, selectors.EVENT_READ, on_readable)

    def remove(self, source: Source | int) -> None:
        """Watch ``source`` no longer."""
        self._selector.unregister(source)

    def wait(self, seconds: float) -> None:
        """Sleep until a source can be read, ``seconds`` at most, and call back for each that can."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            if key.fd in self._selector.get_map():  # an earlier callback may have removed it
                key.data()

    def wait_until(self, done: Callable[[], bool], seconds: float) -> None:
        """Sleep and call back until ``done``, ``seconds`` at most."""
        deadline = time.monotonic() + seconds
        while not done() and (left := deadline - time.monotonic()) > 0:
            self.wait(left)

    def close(self) -> None:
        """Watch nothing any more."""
        self._selector.close()
