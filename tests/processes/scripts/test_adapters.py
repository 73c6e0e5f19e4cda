"""Frameworks are kept still in trials, and nothing that a script asks of them is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.processes.trial.running_scripts import running

LIGHTNING = """
import torch
import lightning
from lightning.pytorch.callbacks import LearningRateMonitor, RichProgressBar, TQDMProgressBar
from torch.utils.data import DataLoader, TensorDataset

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

loader = DataLoader(TensorDataset(torch.ones(100_000, 4)), batch_size=4)
lightning.Trainer(max_epochs=1000, accelerator="cpu", callbacks=[{callbacks}]).fit(Model(), loader)
"""
RICH = """
import torch
from rich.progress import track
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (batch,) in track(DataLoader(TensorDataset(torch.ones(100_000, 4)), batch_size=4)):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        (LIGHTNING.format(callbacks="RichProgressBar(), LearningRateMonitor()"), "lightning"),
        (LIGHTNING.format(callbacks="TQDMProgressBar()"), "lightning"),
        (RICH, "rich"),
    ],
    ids=["Lightning's rich bar", "Lightning's tqdm bar", "rich"],
)
def test_a_script_with_bars_and_monitors_can_be_forked_where_it_trains(
    source: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    with running(source, tmp_path, monkeypatch) as runner:
        assert runner.describe(steps=False).script == "batches"
        fork_point = runner.warm().fork_point
        assert fork_point.no_fork_reason is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]
