"""The one place where the tuner sleeps: who is called back, and who no longer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from autotune.trial.parent.event_loop import EventLoop


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.close()


def test_what_can_be_read_is_called_until_it_is_removed(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    calls: list[str] = []
    loop.add(pair[0].fileno(), lambda: calls.append("read"))
    loop.wait(0.0)
    assert calls == []
    pair[1].send(b"x")
    loop.wait(5.0)
    loop.wait(5.0)
    loop.remove(pair[0].fileno())
    loop.wait(0.0)
    assert calls == ["read", "read"]


def test_a_callback_may_remove_another_that_can_be_read(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket]
) -> None:
    calls: list[int] = []
    for own, other in (pair, pair[::-1]):
        own.send(b"x")
        loop.add(own.fileno(), lambda other=other: (calls.append(1), loop.remove(other.fileno())))  # type: ignore[misc]
    loop.wait(5.0)
    assert len(calls) == 1


def test_waiting_ends_when_done_or_over(loop: EventLoop, pair: tuple[socket.socket, socket.socket]) -> None:
    received: list[bytes] = []
    loop.add(pair[0].fileno(), lambda: received.append(pair[0].recv(1)))
    pair[1].send(b"abc")
    loop.wait_until(lambda: len(received) == 2, 5.0)
    assert received == [b"a", b"b"]
    started = time.monotonic()
    loop.wait_until(lambda: len(received) == 4, 0.05)
    assert received[2:] == [b"c"]
    assert time.monotonic() - started >= 0.05
