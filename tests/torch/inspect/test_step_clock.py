"""The clock of the parts of a step, and where in the user's code they are spent."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from autotune.inspect import step_clock as module
from autotune.inspect.step_clock import StackSampler, step_clock
from autotune.inspect.verdict import Part
from autotune.trial.child.measured_loop import MeasuredLoop


class Loop:
    """What the clock needs of a measured loop."""

    waits_for = MeasuredLoop.waits_for
    on_batch = None
    waited = 0.0

    def __init__(self) -> None:
        self.session = SimpleNamespace(device=torch.device("cpu"), sync=SimpleNamespace(average=lambda: None))

    def made_step(self) -> None:
        pass


class Net(nn.Module):
    """Calls another module, and takes time."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.inner, self.work = nn.Linear(4, 1), work

    def forward(self, inputs: Any) -> Any:
        self.work()
        return self.inner(inputs)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that only the test moves."""
    found = SimpleNamespace(seconds=0.0)
    times = SimpleNamespace(perf_counter=lambda: found.seconds, thread_time=lambda: found.seconds / 2)
    monkeypatch.setattr(module, "time", times)
    return found


class Training:
    """A loop like a user's, whose parts take as long as the test says."""

    def __init__(self, now: SimpleNamespace) -> None:
        self.now, self.loop = now, Loop()
        self.model = Net(lambda: self.passes(3.0))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def passes(self, seconds: float) -> None:
        self.now.seconds += seconds

    def read(self) -> Any:
        self.passes(2.0)
        return torch.ones(8, 4)

    def step(self) -> None:
        batch = self.loop.waits_for(self.read)
        self.passes(1.0)  # the user's own code
        loss = self.model(batch).mean()
        self.passes(0.5)  # the loss
        loss.register_hook(lambda gradient: self.passes(4.0))
        self.optimizer.zero_grad()
        loss.backward()
        self.loop.session.sync.average()
        self.optimizer.register_step_pre_hook(lambda *_: self.passes(5.0))
        self.optimizer.step()
        self.passes(6.0)
        with torch.no_grad():
            self.model(batch)  # an evaluation, of 3 seconds


@pytest.fixture
def training(now: SimpleNamespace) -> Training:
    return Training(now)


def test_each_second_belongs_to_its_part(training: Training) -> None:
    training.loop.session.sync.average = lambda: training.passes(8.0)
    with step_clock(training.loop) as clock:
        training.step()
        assert clock.take() == {
            Part.LOADER: 2.0,
            Part.PASSES: 3.0 + 0.5 + 4.0,
            Part.UPDATE: 5.0,
            Part.GRADIENT_SYNC: 8.0,
            Part.LOOP: 1.0 + 6.0 + 3.0,
        }
        assert clock.loading == 1.0
        assert clock.take() == dict.fromkeys(clock.take(), 0.0)


def test_a_closures_passes_run_within_the_update_and_a_transform_within_the_loader(training: Training) -> None:
    def closure() -> Any:
        loss = training.model(torch.ones(8, 4)).mean()
        loss.backward()
        return loss

    crop, optimizer = nn.Identity(), torch.optim.LBFGS(training.model.parameters(), max_iter=1)
    with step_clock(training.loop) as clock:
        training.step()
        clock.take()
        optimizer.step(closure)
        assert clock.take()[Part.PASSES] >= 3.0
        training.loop.waits_for(lambda: crop(training.read()))
        assert clock.take()[Part.LOADER] == 2.0


def test_everything_is_put_back(training: Training) -> None:
    owners: list[tuple[Any, str]] = [(nn.Module, "__call__"), (torch.autograd, "backward")]
    before = [getattr(owner, name) for owner, name in owners]
    with pytest.raises(ZeroDivisionError), step_clock(training.loop):  # noqa: PT012
        training.step()
        divmod(1, 0)
    assert [getattr(owner, name) for owner, name in owners] == before
    assert training.loop.waits_for == Loop.waits_for.__get__(training.loop)


class TestStackWatch:
    """Real time, and code in this file as a user's."""

    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.0005)

    def test_names_the_function_that_the_loop_calls(self) -> None:
        training = Training(SimpleNamespace(seconds=0.0))
        with step_clock(training.loop) as clock, StackSampler(clock) as watch:
            for _ in range(3):
                training.loop.waits_for(read_slowly)
                clock.enter(Part.LOOP)
                log_metrics()
                busy(0.001)
        found = watch.places()
        assert found[Part.LOADER].function == "read_slowly"
        assert (found[Part.LOOP].function, found[Part.LOOP].file) == ("log_metrics", "test_step_clock.py")
        assert 0.5 < found[Part.LOOP].share < 1


def busy(seconds: float) -> None:
    """Compute for some time."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def log_metrics() -> None:
    """What a loop may call each step."""
    busy(0.05)


def read_slowly() -> None:
    """A slow data set."""
    busy(0.02)
