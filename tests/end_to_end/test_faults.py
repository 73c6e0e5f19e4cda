"""A fault of the user's own code is shown untouched, at once, with exit code 3."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.harness import MLP, autotune, left

pytestmark = pytest.mark.torch

FAULTS = {
    "import": ("import not_a_module\n" + MLP, "ModuleNotFoundError: No module named 'not_a_module'"),
    "import-segv": ("import ctypes; ctypes.string_at(0)\n" + MLP, "while it was imported"),
    "import-exit": ("import sys; sys.exit(0)\n" + MLP, "SystemExit"),
    "dataset": (
        MLP.replace("torch.randn(2048", "torch.rand_n(2048"),
        "AttributeError: module 'torch' has no attribute",
    ),
    "model": (MLP.replace("nn.Linear(64, 10)", "Linear(64, 10)"), "NameError: name 'Linear' is not defined"),
    "shape": (MLP.replace("nn.Linear(32, 64)", "nn.Linear(33, 64)"), "mat1 and mat2 shapes cannot be multiplied"),
    "nan": (MLP.replace("model(inputs), targets)", "model(inputs) * float('nan'), targets)"), "became NaN"),
    "current": (MLP.replace("num_workers=0", "workers=0"), "CURRENT['workers'] is no knob"),
    "current-value": (MLP.replace("batch_size=64", "batch_size=0"), 'CURRENT["batch_size"] = 0'),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_users_code_ends_at_once(tmp_path: Path, name: str) -> None:
    source, words = FAULTS[name]
    (tmp_path / "model.py").write_text(source)
    done = autotune(tmp_path, "tune", "model.py", "--budget", "60s", "--json")
    assert done.code == (2 if name == "current-value" else 3), done.err
    assert words in done.err
    assert done.out == ""
    assert not list(tmp_path.rglob("*.yaml"))
    assert left(0.0) == set()
    if name in ("model", "shape", "dataset"):
        assert "model.py" in done.err
        assert "autotune/trial" not in done.err
