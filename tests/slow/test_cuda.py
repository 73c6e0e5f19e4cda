"""Whole runs of plain scripts on cards: tune, proof and `run`. See `tests/doubles/cuda`."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.cuda import variables
from tests.slow.harness import autotune, environment, left

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
        {memory}
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"loss {{total / len(loader):.6f}}", flush=True)
"""


def script(folder: Path, first: str = "", device: str = "cuda", memory: str = "") -> Path:
    """Write the script; ``memory`` is a line of each step."""
    (folder / "train.py").write_text(SCRIPT.format(first=first, device=device, memory=memory))
    return folder


def losses(printed: str) -> list[float]:
    return [float(each) for each in re.findall(r"^loss (\S+)", printed, re.M)]


def test_a_script_on_a_card_is_tuned_and_runs_as_before(tmp_path: Path) -> None:
    """It cannot be forked where it trains, and does not repeat its own bits: neither is a reason to leave out a knob."""
    cards, folder = variables(tmp_path), script(tmp_path)
    tuned = autotune(folder, "tune", "--budget", "60s", "--profile", "p.yaml", "--json", "train.py", **cards)
    assert tuned.code == 0, tuned.err
    assert tuned.profile["target"]["device"] == "cuda"
    assert tuned.profile["evidence"]["trials"] > 5, tuned.err
    assert "repeat" not in tuned.err
    assert left() == set()
    plain = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env=environment() | cards | {"EPOCHS": "2"},
        capture_output=True,
        text=True,
    )
    ours = autotune(folder, "run", "--profile", "p.yaml", "--level", "safe", "train.py", EPOCHS="2", **cards)
    assert ours.code == plain.returncode == 0, ours.err + plain.stderr
    assert losses(ours.out) == pytest.approx(losses(plain.stdout), rel=1e-3)
    assert len(losses(ours.out)) == 2


@pytest.mark.parametrize(
    ("first", "device"),
    [
        pytest.param("", "cuda:1", id="cuda:1"),
        pytest.param("os.environ['CUDA_VISIBLE_DEVICES'] = '1'", "cuda", id="its own CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_script_is_measured_on_its_own_card(first: str, device: str, tmp_path: Path) -> None:
    cards, folder = variables(tmp_path, cards=2), script(tmp_path, first, device)
    least = ("--budget", "40s", "--only", "optimizer_impl", "--profile", "p.yaml", "--json")
    tuned = autotune(folder, "tune", *least, "train.py", **cards)
    assert tuned.code == 0, tuned.err
    assert tuned.profile["target"]["device"] == device
    idle, busy = struct.unpack("qq", (tmp_path / "cards").read_bytes()[:16])
    assert idle == 0 < busy, "the other card has worked"


@pytest.mark.parametrize(
    ("level", "only", "memory"),
    [
        pytest.param("amp", "precision", "", id="two never fit"),
        pytest.param(
            "max", "batch_size", "torch.empty(len(x) * 2**20, dtype=torch.uint8, device=device)", id="a candidate"
        ),
    ],
)
def test_memory_of_a_card_that_ends(level: str, only: str, memory: str, tmp_path: Path) -> None:
    """The proof needs no memory for two; a batch that does not fit ends its trial, and not the run."""
    cards, folder = variables(tmp_path, memory=400 << 20), script(tmp_path, memory=memory)
    least = ("--budget", "60s", "--level", level, "--only", only, "--profile", "p.yaml", "--json")
    tuned = autotune(folder, "tune", *least, "train.py", **cards)
    assert tuned.code == 0, tuned.err
    assert ("out of memory" in tuned.err) == bool(memory), tuned.err
    assert level in tuned.profile["levels"]
