"""The probe run: what is done once, whatever the script does afterwards."""

import multiprocessing
import threading
from collections.abc import Callable

import pytest
import torch

from autotune import devices
from autotune.trial.child import probe_run


def thread() -> None:
    started = threading.Thread(target=int)
    started.start()
    started.join()


STARTS = {
    "thread": thread,
    "CUDA": lambda: torch.cuda._lazy_init(),
    "memory": lambda: multiprocessing.RawArray("b", 2**24),  # more than earlier tests have left
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_what_forbids_forks_is_seen_once_and_before(start: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with a GPU, whose context nothing starts here."""
    contexts: list[str] = []
    monkeypatch.setattr(devices, "built", lambda: devices.CUDA)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: contexts.append("started"))
    before = threading.Thread.start
    seen: list[tuple[int, int]] = []
    probe_run.before_forks_are_unsafe(lambda: seen.append((threading.active_count(), len(contexts))))
    for _ in range(2):
        start()
    assert seen == [(threading.active_count(), 0)]
    assert threading.Thread.start is before
