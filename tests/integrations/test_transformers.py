"""With the real Transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autotune.integrations import rate_watch
from tests.integrations.records import IMPOSSIBLE, MODEST, promise, said

pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[frameworks]'")
pytest.importorskip("accelerate", reason="needs accelerate: pip install -e '.[frameworks]'")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


class Linear(nn.Module):
    """A model as `Trainer` calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(inputs).square().mean()}


def train(folder: Path, profile: Path, **options: Any) -> Any:
    """Train for 80 optimizer steps, with checkpoints on the way."""
    from transformers import Trainer, TrainingArguments

    from autotune.integrations.transformers import RateCallback

    arguments = TrainingArguments(
        output_dir=str(folder / "out"),
        use_cpu=True,
        max_steps=80,
        per_device_train_batch_size=4,
        report_to=[],
        disable_tqdm=True,
        save_steps=40,
        logging_steps=1000,
        **options,
    )
    data = [{"inputs": torch.randn(8)} for _ in range(64)]
    trainer = Trainer(Linear(), arguments, train_dataset=data, callbacks=[RateCallback(profile)])
    trainer.train()
    return trainer


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize(("rate", "warnings_said"), [(IMPOSSIBLE, 1), (MODEST, 0)])
def test_a_slow_training_is_said_once(
    rate: float, warnings_said: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = train(tmp_path, promise(tmp_path, rate))
    assert trainer.state.global_step == 80
    assert len(said(caplog)) == warnings_said
    states = list(tmp_path.rglob("trainer_state.json"))
    assert states
    assert all("autotune" not in state.read_text() for state in states)


def test_samples_of_accumulated_batches_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float | None] = []
    monkeypatch.setattr(rate_watch.RateWatch, "step", lambda _self, samples: seen.append(samples))
    train(tmp_path, promise(tmp_path, MODEST), gradient_accumulation_steps=2)
    assert seen == [8] * 80
