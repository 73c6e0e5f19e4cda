"""Unmodified training scripts: tuned as they are, and run with the profile applied."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.scripts.corpus import LOOP, PLAIN, STEPPED, added, changed

from .harness import autotune

SCRIPT = changed(
    PLAIN,
    added(LOOP, "print('starts', file=open('started.txt', 'a'))"),
    added(STEPPED, "print('step', step, 'loss', repr(loss.item()))"),
    ("\nif __name__", "    torch.save(model, 'model.pt')\n\nif __name__"),
)


def digest(folder: Path) -> str:
    """Of all files but profiles and caches."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not {"profiles", "__pycache__"} & set(p.parts))
    return hashlib.sha256(b"".join(str(p).encode() + p.read_bytes() for p in files)).hexdigest()


def losses(text: str) -> list[float]:
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith("step ")]


def test_a_script_is_tuned_and_run_with_the_same_losses(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    before = digest(tmp_path)
    done = autotune(tmp_path, "tune", "--budget", "40s", "train.py", "--steps", "1000000")
    assert done.code == 0, done.err
    assert "profiles/" in done.out, "where the profile is, whatever was found"
    assert digest(tmp_path) == before, "the script's own writes landed elsewhere"
    words = ["train.py", "--steps", "20"]
    plain = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    done = autotune(tmp_path, "run", "--level", "safe", *words)
    assert done.code == 0, done.err
    assert losses(done.out) == pytest.approx(losses(plain.stdout), rel=1e-4)
    loads = "import torch; torch.load('model.pt', weights_only=False)(torch.ones(1, 20))"
    subprocess.run([sys.executable, "-c", loads], cwd=tmp_path, check=True)
