"""A script on standard input, which stands in no file: its own classes are tuned, and `load` finds the profile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.profiles import file as profiles

pytestmark = pytest.mark.torch

SCRIPT = """
import torch
from torch import nn

import autotune

WIDTH = 64
data = torch.randn(512, 32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

    def forward(self, inputs):
        return self.layers(inputs)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return len(data)

    def __getitem__(self, index):
        return data[index], int(data[index].argmax()) % 10


def loss(model, batch):
    if BROKEN:
        raise ValueError("a mistake of mine")
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


task = dict(build_model=Net, build_dataset=Rows, compute_loss=loss, current={"batch_size": 64}, name="cells")
autotune.tune(**task, budget=60.0, only=("threads",))
print(autotune.load(target="cells").origin)
"""


def run(folder: Path, broken: bool) -> subprocess.CompletedProcess[str]:
    """Run the script in ``folder``; its temporary files are in there too."""
    (folder / "tmp").mkdir()
    text = f"BROKEN = {broken}\n{SCRIPT}"
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    command = [sys.executable, "-"]
    return subprocess.run(command, input=text, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def left(folder: Path) -> list[str]:
    return [path.name for path in (folder / "tmp").iterdir() if path.name.startswith("autotune-")]


def test_a_session_is_tuned_and_its_profile_found(tmp_path: Path) -> None:
    done = run(tmp_path, broken=False)
    assert done.returncode == 0, done.stderr
    [path] = tmp_path.glob("profiles/*/cells.yaml")
    assert done.stdout.strip() == f"found: {path.relative_to(tmp_path)}"
    assert profiles.read(path).target.samples == 512
    assert left(tmp_path) == []


def test_its_own_errors_come_back(tmp_path: Path) -> None:
    done = run(tmp_path, broken=True)
    assert done.returncode == 1
    assert "in loss\nValueError: a mistake of mine" in done.stderr
    assert "settings: ValueError: a mistake of mine" in done.stderr
    assert left(tmp_path) == []
