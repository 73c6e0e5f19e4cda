"""Messages between machines: one JSON object per line over TCP. Nothing that arrives is ever run."""

from __future__ import annotations

import contextlib
import json
import socket
from collections import deque
from typing import Any

MAX_LINE = 2**20
CHUNK = 65536
QUIET_SECONDS, PROBES = 10, 3
"""TCP keepalive: a machine that vanishes is noticed after this idle time and as long again for each probe."""


class TcpConnection:
    """One end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.inbox: deque[dict[str, Any]] = deque()
        self.closed = False
        self._part = bytearray()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", QUIET_SECONDS), ("TCP_KEEPINTVL", QUIET_SECONDS), ("TCP_KEEPCNT", PROBES)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def fileno(self) -> int:
        """The descriptor that `EventLoop` watches."""
        return self.socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; an end that is gone is noticed when it is read from."""
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> None:
        """Move what has arrived into the inbox: blocks where nothing has. Sets `closed` at the end."""
        try:
            data = self.socket.recv(CHUNK)
        except (ConnectionError, TimeoutError):
            data = b""
        self._part += data
        *lines, rest = bytes(self._part).split(b"\n")
        self._part = bytearray(rest)
        try:
            self.inbox.extend(message for message in map(json.loads, lines) if isinstance(message, dict))
        except ValueError:
            data = b""
        self.closed = self.closed or not data or len(rest) > MAX_LINE

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next message; None at the end, after ``timeout`` seconds of silence, or where it is no message."""
        self.socket.settimeout(timeout)
        try:
            while not self.inbox and not self.closed:
                self.read()
        finally:
            with contextlib.suppress(OSError):
                self.socket.settimeout(None)
        return self.inbox.popleft() if self.inbox else None

    def close(self) -> None:
        """Close this end."""
        self.socket.close()
