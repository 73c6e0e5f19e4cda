"""Where the tuning process sleeps until a child or another machine has something to say."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable

PART_SECONDS = 1.0
"""The longest sleep: a trial's own signs of life wake the tuner more often."""
PAUSE_SECONDS = 1.0
"""Who sleeps so much longer than asked for was suspended or stopped, or the clock jumped: busy machines wake sooner."""


class EventLoop:
    """Calls back for each file descriptor that can be read.

    Attributes:
        paused: seconds that this process stood still while it waited, suspend included.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.paused = 0.0

    def add(self, fd: int, on_readable: Callable[[], object]) -> None:
        """Call ``on_readable`` whenever ``fd`` can be read or its other end is closed."""
        self._selector.register(fd, selectors.EVENT_READ, on_readable)

    def remove(self, fd: int) -> None:
        """Watch ``fd`` no longer."""
        self._selector.unregister(fd)

    def wait(self, seconds: float) -> float:
        """Sleep until something can be read, ``seconds`` or `PART_SECONDS` at most, and call back for all that can.

        Returns:
            Seconds by which the monotonic clock went further than that; 0 where it did not.
        """
        most = min(max(0.0, seconds), PART_SECONDS)
        began, began_boot = time.monotonic(), _since_boot()
        ready = self._selector.select(most)
        late, paused = time.monotonic() - began - most, _since_boot() - began_boot - most
        if paused > PAUSE_SECONDS:
            self.paused += paused
        for key, _ in ready:
            if key.fd in self._selector.get_map():  # an earlier callback may have removed it
                key.data()
        return late if late > PAUSE_SECONDS else 0.0

    def wait_until(self, done: Callable[[], bool], seconds: float) -> None:
        """Sleep and call back until ``done``, ``seconds`` at most."""
        deadline = time.monotonic() + seconds
        while not done() and (left := deadline - time.monotonic()) > 0:
            deadline += self.wait(left)

    def close(self) -> None:
        """Watch nothing any more."""
        self._selector.close()


def _since_boot() -> float:
    """Seconds; on Linux also those of a suspend, in which the monotonic clock stands still."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
