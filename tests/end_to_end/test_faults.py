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


def test_an_import_that_hangs_ends_with_the_budget(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import time\ntime.sleep(3600)\n" + MLP)
    done = autotune(tmp_path, "tune", "model.py", "--budget", "8s")
    assert done.code == 3, done.err
    assert "while it was imported" in done.err
    assert left(0.0) == set()


def test_a_baseline_that_hangs_shows_where(tmp_path: Path) -> None:
    hanging = MLP.replace(
        "    return nn.functional", "    import time\n\n    time.sleep(3600)\n    return nn.functional"
    )
    (tmp_path / "model.py").write_text(hanging)
    done = autotune(tmp_path, "tune", "model.py", "--budget", "25s")
    assert done.code == 3, done.err
    assert "no progress while starting" in done.err
    assert "in compute_loss" in done.err
    assert left(0.0) == set()


@pytest.mark.parametrize("where", ["/proc/nowhere/p.yaml", "/dev/null/p.yaml"])
def test_a_folder_that_cannot_be_written_is_found_out_first(tmp_path: Path, where: str) -> None:
    (tmp_path / "model.py").write_text(MLP)
    done = autotune(tmp_path, "tune", "model.py", "--profile", where)
    assert done.code == 2, done.err
    assert "--profile OUT.yaml" in done.err


def test_a_broken_journal_is_said(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MLP)
    (tmp_path / "p.journal").write_bytes(b"\x00 not a journal\n" * 3)
    done = autotune(tmp_path, "tune", "model.py", "--profile", "p.yaml", "--resume", "--budget", "20s")
    assert done.code == 2, done.err
    assert "without --resume" in done.err
