"""A diagnosis from the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from autotune.inspect.verdict import Bound
from tests.processes.scripts.corpus import PLAIN, STEPPED, added, changed

from .harness import MLP, autotune, left

SLOW = changed(
    MLP,
    ("num_workers=0", "num_workers=0, threads=1"),
    ("return TensorDataset", "return Slow"),
    added(
        "def build_dataset",
        """
        class Slow(TensorDataset):
            def __getitem__(self, index):
                sum(k * k for k in range(5000))
                return super().__getitem__(index)
        """,
    ),
)

SCRIPT = changed(
    PLAIN,
    added(
        "def main():\n",
        """
        torch.set_num_threads(1)

        def log_metrics(model):
            for _ in range(200):
                [parameter.grad.norm().item() for parameter in model.parameters()]
        """,
    ),
    added(STEPPED, "log_metrics(model)"),
    ("default=200", "default=100_000"),
)


@pytest.mark.torch
def test_a_task_whose_loader_is_slow(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    found = json.loads(autotune(tmp_path, "diagnose", "slow.py", "--json", "--budget", "20s").out)
    assert found["verdict"] == Bound.MAIN_PROCESS
    assert set(found["bounds"]) >= {"loader", "optimizer"}
    assert found["inspection"]["places"]["loader"]["function"] == "__getitem__"
    assert found["rate"] * found["step_seconds"] == pytest.approx(64)
    assert not left()


@pytest.mark.torch
def test_a_script_whose_own_loop_takes_most(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = autotune(tmp_path, "diagnose", "--budget", "20s", "train.py")
    assert done.code == 0, done.err
    assert re.search(r"Verdict +loop-bound: .* [6-9]\d%, most of it in log_metrics\s+\(train", done.out)
    assert not left()
