"""Whole runs of plain scripts on cards: tune, proof and `run`. See `tests/doubles/cuda`."""

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.cuda import variables
from tests.slow.harness import Finished, autotune, environment, left

pytestmark = pytest.mark.torch

SCRIPT = """
import os
{first}
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("{device}" if torch.cuda.is_available() else "cpu")
images = torch.randn(1024, 3, 16, 16)
loader = DataLoader(TensorDataset(images, images.mean((1, 2, 3)).gt(0).long()), batch_size=32, shuffle=True)
layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU()]
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 2)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(int(os.environ.get("EPOCHS", 1000))):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        {each}
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"loss {{total / len(loader):.6f}}", flush=True)
"""
HUNGRY = "torch.empty(len(x) * 2**20, dtype=torch.uint8, device=device), sum(range(2**21))"  # half of the steps: a gain


def tuned(folder: Path, cards: dict[str, str], *options: str, each: str = "", **script: str) -> Finished:
    (folder / "train.py").write_text(SCRIPT.format(**{"first": "", "device": "cuda", "each": each} | script))
    done = autotune(folder, "tune", *options, "--profile", "p.yaml", "--json", "train.py", **cards)
    assert (done.code, left()) == (0, set()), done.err
    return done


def losses(printed: str) -> list[float]:
    return [float(each) for each in re.findall(r"^loss (\S+)", printed, re.M)]


def test_a_script_on_a_card_is_tuned_and_runs_as_before(tmp_path: Path) -> None:
    """It cannot be forked where it trains, and does not repeat its bits: no knob is left out for either."""
    cards = variables(tmp_path)
    found = tuned(tmp_path, cards, "--budget", "100s")
    assert found.profile["target"]["device"] == "cuda"
    assert found.profile["evidence"]["trials"] > 5, found.err
    left_out = [each["reason"] for each in found.profile["evidence"]["not_offered"]]
    assert not any("could not be compared" in reason for reason in left_out), left_out
    plain, env = [sys.executable, "train.py"], cards | {"EPOCHS": "2"}
    theirs = subprocess.run(plain, cwd=tmp_path, env=environment() | env, capture_output=True, text=True)
    ours = autotune(tmp_path, "run", "--profile", "p.yaml", "--level", "safe", "train.py", **env)
    assert ours.code == theirs.returncode == 0, ours.err + theirs.stderr
    assert losses(ours.out) == pytest.approx(losses(theirs.stdout), rel=1e-3)
    assert len(losses(ours.out)) == 2


@pytest.mark.parametrize(
    "script", [{"device": "cuda:1"}, {"first": "os.environ['CUDA_VISIBLE_DEVICES'] = '1'"}], ids=["cuda:1", "variable"]
)
def test_a_script_is_measured_on_its_own_card(script: dict[str, str], tmp_path: Path) -> None:
    cards = variables(tmp_path, cards=2)
    found = tuned(tmp_path, cards, "--budget", "40s", "--only", "optimizer_impl", **script)
    assert found.profile["target"]["device"] == script.get("device", "cuda")
    other, own = struct.unpack("qq", (tmp_path / "cards").read_bytes()[:16])
    assert other == 0 < own, "the other card has worked"


@pytest.mark.parametrize(("level", "only", "each"), [("amp", "precision", ""), ("max", "batch_size", HUNGRY)])
def test_memory_of_a_card_that_ends(level: str, only: str, each: str, tmp_path: Path) -> None:
    """Two processes never fit, and a proof needs no two; a batch that does not fit ends its trial, not the run."""
    cards = variables(tmp_path, memory=400 << 20)
    found = tuned(tmp_path, cards, "--budget", "60s", "--level", level, "--only", only, each=each)
    failures = found.profile["evidence"]["failures"]
    assert any(failure["kind"] == "out-of-memory" for failure in failures) == bool(each), failures
    assert "proof" in found.err, found.err
