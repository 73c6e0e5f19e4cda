"""What torchrun tells the processes that it starts, for those who start them in its place."""

from __future__ import annotations

import socket

AS_TORCHRUN = {
    "MASTER_ADDR": "127.0.0.1",
    "GROUP_RANK": 0,
    "GROUP_WORLD_SIZE": 1,
    "ROLE_NAME": "default",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": 0,
    "TORCHELASTIC_MAX_RESTARTS": 0,
}
"""What scripts and frameworks look for to see that torchrun has started them, on one machine."""


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
