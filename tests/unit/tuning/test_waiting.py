"""Another run's time on this machine is not taken from the budget."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.trial.target import Script
from autotune.tuning import run as tuning
from autotune.tuning.options import Options
from benchmarks.simulation.simulator import inventory

WAITED = 100.0


def test_waiting_for_another_run_costs_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]

    @contextlib.contextmanager
    def open_runner(*_: Any) -> Iterator[None]:
        now[0] += WAITED
        yield

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(tuning, "open_runner", open_runner)
    monkeypatch.setattr(tuning, "probe", lambda: inventory(2, 2))
    monkeypatch.setattr(tuning, "on_the_same_cpus", lambda *_: None)
    monkeypatch.setattr(tuning, "_run_phases", lambda host: host.schedule)
    schedule: Any = tuning.run(Script(tmp_path / "train.py"), Options(budget=60.0), started=990.0)
    assert schedule.elapsed == pytest.approx(10.0)
    assert 40.0 < schedule.left <= 50.0
