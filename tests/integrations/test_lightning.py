"""With the real Lightning."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.integrations import rate_watch
from tests.integrations.records import IMPOSSIBLE, MODEST, promise, said

pytest.importorskip("lightning", reason="needs lightning: pip install -e '.[frameworks]'")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def fit(folder: Path, profile: Path, **options: Any) -> Any:
    """Train a linear model for 80 optimizer steps, with an evaluation and a checkpoint on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lightning import LightningModule, Trainer

        from autotune.integrations.lightning import RateCallback

    class Linear(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 1)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch: Any, index: int) -> None:
            self.layer(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=4)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(
        max_steps=80, devices=1, default_root_dir=folder, callbacks=[RateCallback(profile)], **quiet, **options
    )
    trainer.fit(Linear(), loader, DataLoader(TensorDataset(torch.randn(8, 8)), batch_size=4))
    return trainer


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning sets threads where this variable is not set, and keeps its own."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))


@pytest.mark.parametrize(("rate", "warnings_said"), [(IMPOSSIBLE, 1), (MODEST, 0)])
def test_a_slow_training_is_said_once(
    rate: float, warnings_said: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = fit(tmp_path, promise(tmp_path, rate))
    assert trainer.global_step == 80
    assert len(said(caplog)) == warnings_said
    [checkpoint] = tmp_path.rglob("*.ckpt")
    assert b"autotune" not in checkpoint.read_bytes()


def test_samples_of_accumulated_batches_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float | None] = []
    monkeypatch.setattr(rate_watch.RateWatch, "step", lambda _self, samples: seen.append(samples))
    fit(tmp_path, promise(tmp_path, MODEST), accumulate_grad_batches=2)
    assert seen == [8] * 80
