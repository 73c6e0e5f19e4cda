"""The noise scale of gradients that are known: each is the mean of what is drawn around one point."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from autotune.inspect.noise_scale import COUNTED, noise_scale
from autotune.knobs.settings import Settings
from autotune.runtime.session import Session
from autotune.trial.child.rank import TrainingLoop
from autotune.trial.child.task import LoadedTask
from autotune.trial.messages import TrialSpec

BATCH, SIZE, MEAN = 8, 16, 0.5
SETTINGS = Settings(batch_size=BATCH, threads=torch.get_num_threads())


class Task:
    """The loss is the model's mean output: its gradient is the mean of the batch, whatever the weights are."""

    @staticmethod
    def build_model() -> Any:
        return nn.Linear(SIZE, 1, bias=False)

    @staticmethod
    def build_dataset() -> Any:
        return torch.utils.data.TensorDataset(
            MEAN + torch.randn(4096, SIZE, generator=torch.Generator().manual_seed(0))
        )

    @staticmethod
    def compute_loss(model: Any, batch: Any) -> Any:
        return model(batch[0]).mean()


@pytest.fixture
def loop() -> Iterator[TrainingLoop]:
    tuner: Any = SimpleNamespace(send=lambda *_, **__: None)
    with Session(SETTINGS, device="cpu") as session:
        spec = TrialSpec(settings=SETTINGS, max_seconds=0.5)
        yield TrainingLoop(LoadedTask(Task, "fake", "cpu"), session, spec, tuner)


def test_the_noise_scale_is_that_of_the_samples(loop: TrainingLoop) -> None:
    (optimizer,) = loop.trained_with()
    step = optimizer.step
    found = loop.run(noise_scale(loop, pace=1e-4))
    assert found["noise_scale"] == pytest.approx(COUNTED * SIZE / (BATCH * SIZE * MEAN**2), rel=0.1)
    assert optimizer.step == step, "training goes on after it"


def test_it_is_not_known_of_several_optimizers(loop: TrainingLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "trained_with", lambda: [None, None])
    assert loop.run(noise_scale(loop, pace=1e-4)) == {}
