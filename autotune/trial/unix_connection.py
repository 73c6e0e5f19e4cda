"""Messages between the tuner and its children: JSON over a Unix socket that keeps message borders.

A ``SOCK_SEQPACKET`` socket may be written by several processes at once without mixing their messages, passes file
descriptors, and needs no file name, no port and no framing.
"""

from __future__ import annotations

import json
import socket
from typing import Any

MAX_MESSAGE = 128 * 1024
KEPT = (16384, 4096, 1024, 256)
"""Characters and items kept of long texts and lists, tried in turn: JSON may write six bytes for a character."""
KIND = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)
"""macOS has no SEQPACKET for Unix sockets; datagrams keep borders too (but never signal the end)."""


class UnixConnection:
    """One end of a connected pair."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    @classmethod
    def pair(cls) -> tuple[UnixConnection, UnixConnection]:
        """Two connected ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE)
        return cls(ours), cls(theirs)

    @classmethod
    def from_fd(cls, fd: int) -> UnixConnection:
        """The end behind an inherited descriptor."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """The descriptor that `EventLoop` watches."""
        return self.socket.fileno()

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send one message, and descriptors with it. Raises OSError when the other end is gone."""
        data = json.dumps(message).encode()
        for kept in KEPT:
            if len(data) <= MAX_MESSAGE:
                break
            data = json.dumps(_shortened(message, kept)).encode()
        if fds:
            socket.send_fds(self.socket, [data], list(fds))
        else:
            self.socket.send(data)

    def receive(self) -> tuple[dict[str, Any] | None, list[int]]:
        """The next message and its descriptors; None when the other end is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, MAX_MESSAGE, 4)
        except ConnectionResetError:
            return None, []
        return (json.loads(data) if data else None), fds

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def _shortened(message: dict[str, Any], kept: int) -> dict[str, Any]:
    """The message with long texts and lists cut to the tail: the end of a traceback is the part that matters."""

    def cut(value: Any) -> Any:
        if isinstance(value, str):
            return value[-kept:]
        if isinstance(value, list | tuple):
            return [cut(inner) for inner in value[-kept:]]
        if isinstance(value, dict):
            return {key: cut(inner) for key, inner in value.items()}
        return value

    return {key: cut(value) for key, value in message.items()}
