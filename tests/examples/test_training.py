"""Every example trains as a script, with a profile and without, and learns the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autotune.core.settings import Settings
from autotune.store import profiles
from tests.runtime import records

pytestmark = pytest.mark.torch

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN = Settings(threads=1, interop_threads=1)
CASES = {
    "digits": (PLAIN.but(batch_size=64, channels_last=True, optimizer_impl="fused"), 12, 1e-3),
    "jpeg_folder": (PLAIN.but(batch_size=64, num_workers=1, persistent_workers=True, channels_last=True), 3, 0.25),
    "char_transformer": (PLAIN.but(batch_size=16, optimizer_impl="foreach"), 2, 1e-3),
    "tabular_mlp": (PLAIN.but(batch_size=64, optimizer_impl="fused"), 20, 1e-3),
    "lstm_forecast": (PLAIN.but(batch_size=32, optimizer_impl="fused"), 10, 1e-3),
    "recommender": (PLAIN.but(batch_size=256, optimizer_impl="foreach"), 10, 1e-3),
}
"""Settings, batches to train, and how far the loss may differ: augmentations draw differently in workers."""


def train(name: str, folder: Path, *arguments: str, launcher: tuple[str, ...] = (), **env: str) -> float:
    """Run the example; returns the loss it prints."""
    line = [sys.executable, *launcher, str(EXAMPLES / f"{name}.py"), "--epochs", "1", *arguments]
    done = subprocess.run(
        line, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"} | env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"loss ([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found.group(1))


def profile(folder: Path, settings: Settings) -> str:
    return str(profiles.write(folder / "p.yaml", records.profile(settings)))


@pytest.mark.parametrize("name", CASES)
def test_trains_the_same_with_the_profile(name: str, tmp_path: Path) -> None:
    settings, steps, tolerance = CASES[name]
    plain = train(name, tmp_path, "--steps", str(steps), AUTOTUNE_DISABLE="1")
    path = profile(tmp_path, settings)
    tuned = train(name, tmp_path, "--steps", str(steps), "--profile", path)
    assert tuned == pytest.approx(plain, rel=tolerance)


def test_two_processes_learn_as_one_and_save_once(tmp_path: Path) -> None:
    """The example shuffles without a seed of its own, so the order differs and only the loss can be compared."""
    alone, together = tmp_path / "one.pt", tmp_path / "two.pt"
    one = train("tabular_mlp", tmp_path, "--steps", "60", "--save", str(alone), AUTOTUNE_DISABLE="1")
    path = profile(tmp_path, PLAIN.but(processes=2, batch_size=64))
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    two = train("tabular_mlp", tmp_path, "--steps", "60", "--save", str(together), "--profile", path, launcher=launcher)
    assert two == pytest.approx(one, rel=0.5)
    shapes = {key: value.shape for key, value in torch.load(alone).items()}
    assert {key: value.shape for key, value in torch.load(together).items()} == shapes
