"""All that one trial measures of a step, in this process."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from autotune.decoding import decoded
from autotune.inspect.parts import parts
from autotune.inspect.verdict import Bound, Inspection, Part
from autotune.knobs.settings import Settings
from autotune.runtime.session import Session
from autotune.trial import process_tree
from autotune.trial.child.rank import TrainingLoop
from autotune.trial.child.task import LoadedTask
from autotune.trial.messages import TrialSpec

BATCH = 8
LARGE = torch.ones(1024, 1024)


class Net(nn.Sequential):
    """Most of its time goes to one operator."""

    def forward(self, inputs: Any) -> Any:
        LARGE.mm(LARGE)
        return super().forward(inputs)


class Task:
    """A task file's functions."""

    def __init__(self, model: Any) -> None:
        self.build_model = lambda: model

    @staticmethod
    def build_dataset() -> Any:
        return torch.utils.data.TensorDataset(torch.rand(64, 3, 8, 8), torch.arange(64) % 10)

    @staticmethod
    def compute_loss(model: Any, batch: Any) -> Any:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    found: list[Session] = []
    yield found
    for session in found:
        session.close()


def inspected(model: Any, sessions: list[Session]) -> Inspection:
    settings = Settings(batch_size=BATCH, threads=torch.get_num_threads())
    sessions.append(Session(settings, device="cpu"))
    spec = TrialSpec(settings=settings, max_seconds=0.05)
    tuner: Any = SimpleNamespace(send=lambda *_, **__: None)
    loop = TrainingLoop(LoadedTask(Task(model), "fake", "cpu"), sessions[0], spec, tuner)
    loop.run(loop.block(2))
    return decoded(Inspection, json.loads(json.dumps(loop.run(parts(loop, 0.002)))))


def test_every_part_is_measured(sessions: list[Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "descendants", lambda _root: set())  # what other tests have started is no worker
    model = Net(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 10))
    found = inspected(model, sessions)
    assert len(found.blocks) >= 3
    assert all(block[part] > 0 for block in found.blocks for part in (Part.LOADER, Part.PASSES, Part.UPDATE))
    assert found.step_seconds > 0
    assert found.items == BATCH
    assert {each.name: each.calls for each in found.operators}["mm"] == 1 + 2, "two of them in the backward pass"
    assert found.loader is Bound.MAIN_PROCESS
