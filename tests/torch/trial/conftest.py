"""Training loops in this process, on a clock that only the task's own work moves."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from autotune.devices import CPU, Device
from autotune.knobs.settings import Settings
from autotune.runtime.session import Session
from autotune.stats.measurement import Block, Measurement
from autotune.trial.child import measured_loop
from autotune.trial.child import measuring as warming
from autotune.trial.child.rank import TrainingLoop
from autotune.trial.child.task import LoadedTask
from autotune.trial.messages import TrialSpec

BATCH = 8
STEP = 0.01
"""Seconds of one step, where a test says nothing else."""


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Samples(Dataset[Any]):
    """``count`` samples; reading one takes ``seconds``."""

    def __init__(self, clock: Clock, count: int, seconds: float) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(count, 3, generator=generator)
        self.clock, self.seconds = clock, seconds

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.clock.now += self.seconds
        return self.inputs[index], self.inputs[index].sum()


class Workshop:
    """Makes loops over a small regression task, and sees what happens in them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.monkeypatch = monkeypatch
        self.cost: Callable[[int], float] = lambda _: STEP
        self.steps = 0
        self.seen: list[torch.Tensor] = []
        self.signs: list[float] = []
        self.syncs = 0
        self.sessions: list[Session] = []
        for module in (measured_loop, warming):
            clocks = dict.fromkeys(("perf_counter", "process_time", "thread_time"), self.clock)
            monkeypatch.setattr(module, "time", SimpleNamespace(**clocks))

    def loop(
        self,
        settings: Settings | None = None,
        *,
        samples: int = 64,
        reading: float = 0.0,
        spec: dict[str, Any] | None = None,
        **parts: Any,
    ) -> TrainingLoop:
        """A loop under ``settings``; ``parts`` replace functions of the task file."""
        settings = settings or Settings(batch_size=BATCH)
        module = ModuleType("fake_task")
        module.build_model = lambda: nn.Linear(3, 1)  # type: ignore[attr-defined]
        module.build_dataset = lambda: Samples(self.clock, samples, reading)  # type: ignore[attr-defined]
        module.build_optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.01)  # type: ignore[attr-defined]
        module.compute_loss = self.loss  # type: ignore[attr-defined]
        vars(module).update(parts)
        session = Session(replace(settings, num_workers=0, threads=torch.get_num_threads()), device="cpu")
        self.sessions.append(session)
        self.count_syncs(session)
        whole = TrialSpec(settings=settings, **(spec or {}))
        tuner: Any = SimpleNamespace(send=lambda *_, **__: self.signs.append(self.clock.now))
        return TrainingLoop(LoadedTask(module, "fake", "cpu"), session, whole, tuner)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """Mean squared error; moves the clock by the step's cost."""
        inputs, targets = batch
        self.seen.append(inputs)
        self.clock.now += self.cost(self.steps)
        self.steps += 1
        return nn.functional.mse_loss(model(inputs).squeeze(1), targets)

    def count_syncs(self, session: Session) -> None:
        """Count how often the loop waits for the device."""

        def synchronize(_device: Device) -> None:
            self.syncs += 1

        self.monkeypatch.setattr(type(CPU), "synchronize", synchronize)


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    found = Workshop(monkeypatch)
    yield found
    for session in found.sessions:
        session.close()


def block(loop: TrainingLoop, steps: int) -> Block:
    """``steps`` measured steps."""
    return loop.run(loop.block(steps))


def warm(loop: TrainingLoop) -> Measurement:
    """``loop``'s warm-up."""
    return loop.run(warming.warm_up(loop))
