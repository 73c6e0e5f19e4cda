"""A recording waits for a low core-to-core latency, and not for ever."""

from __future__ import annotations

import pytest

from benchmarks.grid import gate
from benchmarks.grid.gate import TRIES, Gate

LOW, HIGH = 25e-6, 75e-6


class Cores:
    """Stands for `CoreLatencyTimer`: plays back a list, its last value for ever."""

    def __init__(self, *seconds: float) -> None:
        self.left = list(seconds)

    def seconds(self) -> float:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []
    monkeypatch.setattr(gate.time, "sleep", taken.append)
    monkeypatch.setattr(gate.torch, "set_num_threads", lambda _: None)
    return taken


def made(cores: Cores, patience: float = 5.0, lowest: float = LOW) -> Gate:
    found = Gate(lowest, patience)
    found.latency = cores  # type: ignore[assignment]
    return found


def test_a_low_latency_passes_at_once(naps: list[float]) -> None:
    assert made(Cores(LOW)).measured(lambda: "result") == "result"
    assert naps == []


def test_it_waits_until_latency_is_low(naps: list[float]) -> None:
    made(Cores(HIGH, HIGH, LOW)).wait()
    assert len(naps) == 2


def test_a_rise_meanwhile_is_measured_again(naps: list[float]) -> None:
    results = iter(range(9))
    assert made(Cores(LOW, HIGH, LOW, LOW)).measured(lambda: next(results)) == 1


def test_it_does_not_try_for_ever(naps: list[float]) -> None:
    results = iter(range(9))
    assert made(Cores(*[LOW, HIGH] * 9)).measured(lambda: next(results)) == TRIES - 1


def test_patience_ends(naps: list[float]) -> None:
    results = iter(range(9))
    assert made(Cores(HIGH), patience=1.0).measured(lambda: next(results)) == 0
    assert sum(naps) == pytest.approx(1.0)


def test_a_new_lowest_counts_from_then_on(naps: list[float]) -> None:
    held = made(Cores(HIGH, LOW, HIGH), lowest=0.0)
    assert [held.high(), held.high(), held.high()] == [False, False, True]
