from __future__ import annotations

import threading

import pytest
import torch

import autotune
from autotune.environment import TIMEOUT_VARIABLE
from autotune.runtime import watchdog


def test_where_no_optimizer_steps_it_ends() -> None:
    ended = threading.Event()
    stop = watchdog.watch(0.01, lambda seconds: ended.set())
    assert ended.wait(10.0)
    stop()


def test_a_process_is_watched_once() -> None:
    stop = watchdog.watch(60.0)
    assert watchdog.watch(0.01, lambda seconds: pytest.fail("watched twice")) is stop
    stop()
    again = watchdog.watch(60.0)
    assert again is not stop
    again()


class Clock:
    """Stands still until it is moved by hand, and knows how often it was read."""

    def __init__(self) -> None:
        self.now, self.reads = 100.0, 0
        self.read_often = threading.Event()

    def monotonic(self) -> float:
        self.reads += 1
        if self.reads > 5:
            self.read_often.set()
        return self.now

    def was_read_again(self) -> bool:
        """Wait until the guard has looked several times."""
        self.reads = 0
        self.read_often.clear()
        return self.read_often.wait(60.0)


def test_steps_put_the_end_off(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ended = Clock(), threading.Event()
    monkeypatch.setattr(watchdog, "time", clock)
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    stop = watchdog.watch(0.01, lambda seconds: ended.set())
    for _ in range(3):
        clock.now += 0.008
        optimizer.step()
        assert clock.was_read_again()
        assert not ended.is_set()
    clock.now += 0.011
    assert ended.wait(60.0)
    stop()


def test_training_that_has_ended_is_watched_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the script does then may take long."""

    def watching() -> bool:
        return any(thread.name == "autotune-watchdog" for thread in threading.enumerate())

    monkeypatch.setenv(TIMEOUT_VARIABLE, "60")
    monkeypatch.setenv("AUTOTUNE_DISABLE", "1")
    session = autotune.load()
    assert watching()
    session.close()
    assert not watching()
