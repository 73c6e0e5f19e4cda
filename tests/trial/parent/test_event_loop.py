"""The one place where the tuner sleeps: who is called back, and who no longer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from autotune.trial.parent import event_loop
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


@pytest.mark.parametrize(("jump", "suspend"), [(0.5, 0.0), (5.0, 0.0), (3600.0, 0.0), (0.0, 3600.0)])
def test_where_all_stood_still_it_is_known(
    jump: float, suspend: float, loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monotonic clock may jump while the run sleeps (a virtual machine), or stand still in a suspend."""
    monotonic, boot = iter((10.0, 10.0 + jump)), iter((20.0, 20.0 + jump + suspend))
    clocks = SimpleNamespace(monotonic=lambda: next(monotonic), clock_gettime=lambda _: next(boot), CLOCK_BOOTTIME=7)
    monkeypatch.setattr(event_loop, "time", clocks)
    late = loop.wait(0.0)
    assert late == (jump if jump > event_loop.PAUSE_SECONDS else 0.0)
    assert loop.paused == (max(jump, suspend) if max(jump, suspend) > event_loop.PAUSE_SECONDS else 0.0)


def test_a_wait_goes_on_after_a_suspend(
    loop: EventLoop, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was to answer within so many seconds slept too."""
    received: list[bytes] = []
    loop.add(pair[0].fileno(), lambda: received.append(pair[0].recv(1)))
    now, late = [10.0], [3600.0, 0.0]
    monkeypatch.setattr(event_loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    select = loop._selector.select

    def sleep(seconds: float) -> object:
        now[0] += seconds + (jump := late.pop(0))
        if not jump:
            pair[1].send(b"x")
        return select(0.0)

    monkeypatch.setattr(
        loop, "_selector", SimpleNamespace(select=sleep, get_map=loop._selector.get_map, close=loop.close)
    )
    loop.wait_until(lambda: bool(received), 30.0)
    monkeypatch.undo()
    assert received == [b"x"]
