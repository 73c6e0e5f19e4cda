"""A diagnosis from the command line."""

import re
from pathlib import Path

import pytest

from tests.processes.scripts.corpus import PLAIN, STEPPED, added, changed

from .harness import autotune, left

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
def test_a_script_whose_own_loop_takes_most(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = autotune(tmp_path, "diagnose", "--budget", "20s", "train.py")
    assert done.code == 0, done.err
    assert re.search(r"Verdict +loop-bound: .* [6-9]\d%, most of it in log_metrics\s+\(train", done.out)
    assert not left()
