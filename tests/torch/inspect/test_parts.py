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
from autotune.inspect.parts import Operator, Rates, parts, roofline  # noqa: E402
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
    assert sum(found.roofline.values()) > 0
    assert found.roofline["overhead"] > 0
    assert found.loader in Bound


class TestRoofline:
    RATES = Rates(call_seconds=5e-6, flops=1e12, copied=1e10, cleared=1e9)

    def bound(self, **values: float) -> dict[str, float]:
        operator = Operator("aten::mm", **({"calls": 1.0, "seconds": 0.002} | values))
        return roofline([operator], self.RATES)

    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            ({"flops": 1e9, "bytes": 1e6}, "compute"),
            ({"bytes": 1.5e7}, "bandwidth"),
            ({"fresh": 1.5e6}, "bandwidth"),
            ({"calls": 300.0}, "overhead"),
            ({"flops": 1e8, "bytes": 1e6}, "other"),
        ],
        ids=["a product", "traffic", "new memory", "many calls", "neither explains it"],
    )
    def test_an_operator_is_bound_by_what_explains_its_time(self, values: dict[str, float], kind: str) -> None:
        found = self.bound(**values)
        assert max(found, key=lambda name: found[name]) == kind

    def test_what_the_profiler_counts_elsewhere_or_not_at_all_still_computes(self) -> None:
        """It counts a convolution's operations at one that takes no time itself, and for the forward pass only."""
        counted = Operator("aten::conv2d", 1.0, 1e-6, flops=1e9)
        slow = Operator("aten::mkldnn_convolution", 1.0, 0.002)
        back = Operator("aten::convolution_backward", 1.0, 0.004)
        found = roofline([counted, slow, back], self.RATES)
        assert found["compute"] == pytest.approx(0.006, rel=0.01)
