"""All that one trial measures of a step, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from autotune.decoding import decoded  # noqa: E402
from autotune.inspect.parts import parts, use  # noqa: E402
from autotune.inspect.verdict import Bound, Inspection, Part  # noqa: E402
from autotune.knobs.settings import Settings  # noqa: E402
from autotune.runtime.session import Session  # noqa: E402
from autotune.trial.child.rank import TrainingLoop  # noqa: E402
from autotune.trial.child.task import LoadedTask  # noqa: E402
from autotune.trial.messages import TrialSpec  # noqa: E402

BATCH = 8


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


def test_every_part_is_measured(sessions: list[Session]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 10))
    found = inspected(model, sessions)
    assert len(found.blocks) >= 3
    assert all(block[part] > 0 for block in found.blocks for part in (Part.LOADER, Part.PASSES, Part.UPDATE))
    assert found.step_seconds > 0
    assert found.items == BATCH
    assert found.uses[Bound.OVERHEAD] > 0
    assert found.operators
    assert found.loader in Bound


@pytest.mark.parametrize(
    ("name", "shapes", "flops", "seconds", "expected"),
    [
        ("aten::mm", [[256, 1024], [1024, 1024]], 5.4e8, 0.01, Bound.COMPUTE),
        ("aten::mm", [[4, 1024], [1024, 1024]], 8.4e6, 0.001, Bound.MEMORY),
        ("aten::relu", [[1024, 1024]], 0, 0.001, Bound.MEMORY),
        ("aten::convolution_backward", [[8, 3, 32, 32]], 0, 0.001, Bound.COMPUTE),
        ("aten::mm", [[16, 16], [16, 16]], 8192, 5e-6, Bound.OVERHEAD),
    ],
    ids=["a product", "traffic of weights", "no operations", "operations are not counted", "a short call"],
)
def test_what_an_operator_takes_its_time_for(
    name: str, shapes: Any, flops: float, seconds: float, expected: Bound
) -> None:
    event = SimpleNamespace(name=name, input_shapes=shapes, flops=flops)
    assert use(SimpleNamespace(**vars(event), self_cpu_memory_usage=0, self_device_memory_usage=0), seconds) is expected
