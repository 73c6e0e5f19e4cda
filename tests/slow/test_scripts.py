"""Unmodified training scripts: tuned as they are, and run with the profile applied."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from .harness import autotune

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

steps = int(sys.argv[1])
torch.manual_seed(0)
inputs = torch.randn(512, 16)
loader = DataLoader(TensorDataset(inputs, inputs.argmax(dim=1) % 4), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters())
print("starts", file=open("started.txt", "a"))
step = 0
while step < steps:
    for batch, labels in loader:
        loss = nn.functional.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, "loss", repr(loss.item()))
        step += 1
        if step == steps:
            break
torch.save(model, "model.pt")
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the script was tuned."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(SCRIPT)
    before = digest(folder)
    done = autotune(folder, "tune", "--budget", "40s", "train.py", "1000000")
    assert done.code == 0, done.err
    assert "autotune run --profile" in done.err or "nothing to apply" in done.err
    assert digest(folder) == before, "the script's own writes landed elsewhere"
    return folder


def digest(folder: Path) -> str:
    """Of all files but profiles and caches."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not {"profiles", "__pycache__"} & set(p.parts))
    return hashlib.sha256(b"".join(str(p).encode() + p.read_bytes() for p in files)).hexdigest()


def losses(text: str) -> list[float]:
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith("step ")]


def test_run_tuned_gives_the_same_losses(tuned: Path) -> None:
    plain = subprocess.run([sys.executable, "train.py", "20"], cwd=tuned, capture_output=True, text=True, check=True)
    done = autotune(tuned, "run", "--level", "safe", "train.py", "20")
    assert done.code == 0, done.err
    assert losses(done.out) == pytest.approx(losses(plain.stdout), rel=1e-4)
    assert (tuned / "model.pt").is_file()
    loads = "import torch; torch.load('model.pt', weights_only=False)(torch.ones(1, 16))"
    subprocess.run([sys.executable, "-c", loads], cwd=tuned, check=True)
