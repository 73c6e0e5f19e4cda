"""When a trial counts as hung. The clock is moved by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.stats.outcome import BUDGET_OVER
from autotune.trial.parent import runner
from autotune.trial.parent.runner import RunningTrial, Timeouts


class Clock:
    """Stands for the event loop and for time: to wait is to move the clock; messages come at their time."""

    def __init__(self, *messages: tuple[float, dict[str, Any]]) -> None:
        self.now, self.messages = 0.0, list(messages)
        self.trial: Any = None
        self.late = 0.0
        """Seconds of a suspend within the next wait."""

    def wait(self, seconds: float) -> float:
        late, self.late = self.late, 0.0
        self.now += late
        due = self.now + seconds
        if self.messages and self.messages[0][0] <= due:
            self.now, message = self.messages.pop(0)
            self.trial.record(message)
        else:
            self.now = due
        return late

    def wait_until(self, done: Any, seconds: float) -> None:
        """Nothing ends."""


def trial(clock: Clock, monkeypatch: pytest.MonkeyPatch, timeouts: Timeouts) -> Any:
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: clock.now))
    server: Any = SimpleNamespace(loop=clock, gone=False, process=SimpleNamespace(wait=lambda: 9), asked=[])
    server.stacks, server.send = server.asked.append, lambda request, pid: server.asked.append(request)
    clock.trial = found = RunningTrial(server, timeouts)
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
def test_silence_longer_than_the_timeout_of_the_phase(messages, timeouts, phase, at, monkeypatch) -> None:
    clock = Clock(*messages)
    hung = trial(clock, monkeypatch, timeouts)
    hung.wait()
    assert hung.end.timed_out == phase
    assert clock.now == pytest.approx(at)
    stacks = [] if phase == BUDGET_OVER else [hung.pid]
    assert hung.server.asked == [*stacks, "kill"], "where each process hangs"


def test_a_fork_server_that_is_gone_takes_its_trials_along(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    orphan = trial(clock, monkeypatch, Timeouts())
    orphan.server.gone = True
    orphan.wait()
    assert (orphan.end.code, orphan.end.timed_out) == (9, None)


def test_a_suspend_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock((3610.0, {"event": "ready"}))
    clock.late = 3600.0
    sleeping = trial(clock, monkeypatch, Timeouts(starting=20.0))
    sleeping.wait(1)
    assert sleeping.end.timed_out is None
