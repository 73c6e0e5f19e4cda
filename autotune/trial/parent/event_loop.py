"""Where the tuning process sleeps until a child or another machine has something to say."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable


class EventLoop:
    """Calls back for each file descriptor that can be read. It never polls."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, fd: int, on_readable: Callable[[], object]) -> None:
        """Call ``on_readable`` whenever ``fd`` can be read or its other end is closed."""
        self._selector.register(fd, selectors.EVENT_READ, on_readable)

    def remove(self, fd: int) -> None:
        """Watch ``fd`` no longer."""
        self._selector.unregister(fd)

    def wait(self, seconds: float) -> None:
        """Sleep until something can be read, ``seconds`` at most, and call back for all that can."""
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
