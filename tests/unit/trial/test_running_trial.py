"""When a trial counts as hung. The clock is moved by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.stats.outcome import BUDGET_OVER
from autotune.trial.parent import runner as watchdog
from autotune.trial.parent.runner import RunningTrial, Timeouts


class Clock:
    """Stands for the event loop and for time: to wait is to move the clock; messages come at their time."""

    def __init__(self, *messages: tuple[float, dict[str, Any]]) -> None:
        self.now, self.messages, self.trial = 0.0, list(messages), None
        self.late = 0.0
        """Seconds of a suspend within the next wait."""

    def wait(self, seconds: float) -> float:
        late, self.late = self.late, 0.0
        self.now += late
        due = self.now + seconds
        if self.messages and self.messages[0][0] <= due:
            self.now, message = self.messages.pop(0)
            self.trial.record(message)  # type: ignore[attr-defined]
        else:
            self.now = due
        return late


def trial(clock: Clock, monkeypatch: pytest.MonkeyPatch, timeouts: Timeouts) -> RunningTrial:
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: clock.now))
    asked: list[int] = []
    server: Any = SimpleNamespace(gone=False, process=SimpleNamespace(wait=lambda: 9), asked=asked, stacks=asked.append)
    clock.trial = found = RunningTrial(server, None, 2**22 + 1, timeouts)  # type: ignore[arg-type, assignment]
    return found


STEPPING = {"event": "phase", "phase": "stepping"}


@pytest.mark.parametrize(
    ("messages", "timeouts", "phase", "at"),
    [
        ((), Timeouts(starting=5.0), "starting", 5.0),
        (((3.0, STEPPING),), Timeouts(starting=5.0, stepping=2.0), "stepping", 5.0),
        (((3.0, STEPPING), (4.5, STEPPING)), Timeouts(starting=5.0, stepping=2.0), "stepping", 6.5),
        ((), Timeouts(starting=5.0, deadline=4.0), BUDGET_OVER, 4.0),
    ],
)
def test_silence_longer_than_the_timeout_of_the_phase(
    messages: tuple[tuple[float, dict[str, Any]], ...],
    timeouts: Timeouts,
    phase: str,
    at: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(*messages)
    hung = trial(clock, monkeypatch, timeouts)
    watchdog.wait(clock, hung, lambda: False)  # type: ignore[arg-type]
    assert hung.timed_out == phase
    assert clock.now == pytest.approx(at)
    assert hung.server.asked == ([] if phase == BUDGET_OVER else [hung.pid]), "where each process hangs"  # type: ignore[attr-defined]


def test_a_zygote_that_is_gone_takes_its_trials_along(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    orphan = trial(clock, monkeypatch, Timeouts())
    orphan.server.gone = True
    watchdog.wait(clock, orphan, lambda: False)  # type: ignore[arg-type]
    assert (orphan.code, orphan.timed_out) == (9, None)


def test_a_suspend_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock((3610.0, {"event": "ready"}))
    clock.late = 3600.0
    sleeping = trial(clock, monkeypatch, Timeouts(starting=20.0))
    watchdog.wait(clock, sleeping, sleeping.has_events)  # type: ignore[arg-type]
    assert sleeping.timed_out is None
