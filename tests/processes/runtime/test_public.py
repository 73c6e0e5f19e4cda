from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.profiles import file as profiles
from tests.torch.records import quiet
from tests.unit.records import profile

TRAIN = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("optuna", "typer", "click", "rich", "psutil"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
import torch
import autotune
from torch.utils.data import DataLoader, TensorDataset

tuned = autotune.load(sys.argv[1])
assert tuned.settings is not None, tuned.notes
model = torch.nn.Linear(4, 1)
data = TensorDataset(torch.ones(8, 4), torch.ones(8, 1))
model, optimizer, loader = tuned.prepare(model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(data, 4))
for inputs, targets in loader:
    tuned.backward(torch.nn.functional.mse_loss(model(inputs), targets))
    optimizer.step()
    optimizer.zero_grad()
"""
"""A training that applies a profile where the libraries of the search and of the command line are not installed."""


@pytest.mark.torch
def test_training_needs_no_library_of_the_tuner(tmp_path: Path) -> None:
    written = profiles.write(tmp_path / "own.yaml", profile(quiet(batch_size=4)))
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(written)], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
