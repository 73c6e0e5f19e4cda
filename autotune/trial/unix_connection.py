"""Messages between the tuner and its children: JSON over a Unix socket that keeps message borders.

A ``SOCK_SEQPACKET`` socket may be written by several processes at once without mixing their messages, passes file
descriptors, and needs no file name, no port and no framing. What is too long for a message goes in a file without a
name, whose descriptor the message passes.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from typing import IO, Any

MAX_MESSAGE = 128 * 1024
IN_FILE = "content is in the last descriptor"
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
        if len(data) > MAX_MESSAGE:
            with _nameless_file() as file:
                file.write(data)
                file.flush()
                self.send({IN_FILE: True}, (*fds, file.fileno()))
        elif fds:
            socket.send_fds(self.socket, [data], list(fds))
        else:
            self.socket.send(data)

    def receive(self) -> tuple[dict[str, Any] | None, list[int]]:
        """The next message and its descriptors; None when the other end is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, MAX_MESSAGE, 4)
        except ConnectionResetError:
            return None, []
        message = json.loads(data) if data else None
        if message == {IN_FILE: True}:
            with open(fds.pop(), "rb") as file:
                file.seek(0)
                message = json.load(file)
        return message, fds

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


def _nameless_file() -> IO[bytes]:
    """Return a file that is gone with its last descriptor; in memory if the system can."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("message"), "w+b")
    return tempfile.TemporaryFile()
