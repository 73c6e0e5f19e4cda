"""Every example trains as a script, with a profile and without, and learns the same."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from tests.unit import records

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PLAIN = Settings(threads=1, interop_threads=1)
CASES = {
    "digits": (PLAIN.but(batch_size=64, channels_last=True, optimizer_impl="fused"), 12, 1e-3),
    "jpeg_folder": (PLAIN.but(batch_size=64, num_workers=1, channels_last=True), 3, 0.25),
    "char_transformer": (PLAIN.but(batch_size=16, optimizer_impl="foreach"), 2, 1e-3),
    "tabular_mlp": (PLAIN.but(batch_size=64, optimizer_impl="fused"), 20, 1e-3),
    "lstm_forecast": (PLAIN.but(batch_size=32, optimizer_impl="fused"), 10, 1e-3),
    "recommender": (PLAIN.but(batch_size=256, optimizer_impl="foreach"), 10, 1e-3),
}
"""Settings, batches to train, and how far the loss may differ: augmentations draw differently in workers."""


def loss(folder: Path, words: list[str], **variables: str) -> float:
    """The loss that ``python WORDS`` prints."""
    paths = os.pathsep.join((str(ROOT), str(EXAMPLES)))
    own = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths} | variables
    done = subprocess.run([sys.executable, *words], cwd=folder, env=own, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = re.search(r"loss ([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found.group(1))


@pytest.mark.parametrize("name", CASES)
def test_trains_the_same_with_the_profile(name: str, tmp_path: Path) -> None:
    settings, steps, tolerance = CASES[name]
    words = [str(EXAMPLES / f"{name}.py"), "--epochs", "1", "--steps", str(steps)]
    plain = loss(tmp_path, words, AUTOTUNE_DISABLE="1")
    made = profiles.write(tmp_path / "tuned.yaml", records.profile(settings))
    tuned = loss(tmp_path, [*words, "--profile", str(made)])
    assert tuned == pytest.approx(plain, rel=tolerance)
