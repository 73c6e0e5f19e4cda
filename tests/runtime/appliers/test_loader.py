from __future__ import annotations

from typing import Any

import pytest
import torch
from autotune.runtime.applier import Training
from autotune.runtime.appliers.loader import PinMemory, PrefetchFactor, WorkerStart
from torch.utils.data import DataLoader

HERE = Training(None, None, torch.device("cpu"))
DATA = list(range(4))


def arguments(own: DataLoader[Any], workers: int = 1) -> dict[str, Any]:
    return {"num_workers": workers, "prefetch_factor": 2, "multiprocessing_context": own.multiprocessing_context}


@pytest.mark.parametrize(
    ("own", "workers", "started"),
    [({}, 1, "fork"), ({}, 0, None), ({"num_workers": 1, "multiprocessing_context": "spawn"}, 1, "spawn")],
)
def test_workers_are_started_as_tuned_unless_the_user_has_chosen(
    own: dict[str, Any], workers: int, started: str | None
) -> None:
    loader = DataLoader(DATA, **own)
    found = arguments(loader, workers)
    WorkerStart("fork", HERE).loader(loader, found)
    method = found["multiprocessing_context"]
    assert (method if method is None or isinstance(method, str) else method.get_start_method()) == started


def test_the_default_changes_nothing() -> None:
    found = arguments(DataLoader(DATA))
    WorkerStart("default", HERE).loader(DataLoader(DATA), found)
    assert found == arguments(DataLoader(DATA))


@pytest.mark.parametrize(("value", "expected"), [(4, 4), (None, 2)])
def test_prefetching_without_a_tuned_number_is_the_users(value: int | None, expected: int) -> None:
    found = arguments(DataLoader(DATA))
    PrefetchFactor(value, HERE).loader(DataLoader(DATA), found)
    assert found["prefetch_factor"] == expected


def test_pinned_memory_serves_accelerators_only() -> None:
    pinned = PinMemory(True, HERE)
    found = arguments(DataLoader(DATA))
    pinned.loader(DataLoader(DATA), found)
    assert found["pin_memory"] is False
    assert "no effect" in (pinned.start() or "")
