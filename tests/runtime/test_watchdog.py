from __future__ import annotations

import threading

import pytest
import torch

from autotune.core.backends import TIMEOUT_VARIABLE
from autotune.runtime import watchdog


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("0.5", 0.5), ("", None), ("soon", None), ("-1", None), ("0", None), ("inf", None)],
)
def test_what_the_environment_asks_for(text: str, seconds: float | None) -> None:
    assert watchdog.seconds_of({TIMEOUT_VARIABLE: text}) == seconds
    assert watchdog.seconds_of({}) is None


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


def test_steps_put_the_end_off() -> None:
    ended = threading.Event()
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    stop = watchdog.watch(5.0, lambda seconds: ended.set())
    optimizer.step()
    stop()
    assert not ended.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "autotune-watchdog"]
