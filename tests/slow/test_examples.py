"""Every example trains as a script, with a profile and without, and learns the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from tests.unit import records

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DRIVER = Path(__file__).with_name("example_train.py")
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


WORDS = "--steps", "60", "--save"
"""Of the example that two processes train too."""


def start(words: list[str], folder: Path, given: str | None = None) -> str:
    """What ``python WORDS`` prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join((str(ROOT), str(EXAMPLES)))},
        input=given,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def script(name: str, *arguments: str) -> list[str]:
    return [str(EXAMPLES / f"{name}.py"), "--epochs", "1", *arguments]


def loss(printed: str) -> float:
    found = re.search(r"loss ([\d.]+)", printed)
    assert found is not None, printed
    return float(found.group(1))


def profile(path: Path, settings: Settings) -> str:
    return str(profiles.write(path, records.profile(settings)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[str, tuple[str, str]]:
    """What each example printed, trained without a profile and with one; `tabular_mlp` as ``alone`` too."""
    runs = []
    for name, (settings, steps, _) in CASES.items():
        words = script(name, "--steps", str(steps))
        path = profile(folder / f"{name}.yaml", settings)
        runs.append({"words": words, "variables": {"AUTOTUNE_DISABLE": "1"}})
        runs.append({"words": [*words, "--profile", path], "variables": {}})
    alone = script("tabular_mlp", *WORDS, str(folder / "one.pt"))
    runs.append({"words": alone, "variables": {"AUTOTUNE_DISABLE": "1"}})
    said = json.loads(start([str(DRIVER)], folder, json.dumps(runs)).splitlines()[-1])
    pairs = zip(said[:-1:2], said[1:-1:2], strict=True)
    return {**dict(zip(CASES, pairs, strict=True)), "alone": (said[-1], "")}


@pytest.mark.parametrize("name", CASES)
def test_trains_the_same_with_the_profile(name: str, printed: dict[str, tuple[str, str]]) -> None:
    plain, tuned = map(loss, printed[name])
    assert tuned == pytest.approx(plain, rel=CASES[name][2])


def test_two_processes_learn_as_one_and_save_once(folder: Path, printed: dict[str, tuple[str, str]]) -> None:
    """The example shuffles without a seed of its own, so the order differs and only the loss can be compared."""
    path = profile(folder / "two.yaml", PLAIN.but(processes=2, batch_size=64))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = script("tabular_mlp", *WORDS, str(folder / "two.pt"), "--profile", path)
    two = loss(start([*launcher, *words], folder))
    assert two == pytest.approx(loss(printed["alone"][0]), rel=0.5)
    shapes = {key: value.shape for key, value in torch.load(folder / "one.pt").items()}
    assert {key: value.shape for key, value in torch.load(folder / "two.pt").items()} == shapes
