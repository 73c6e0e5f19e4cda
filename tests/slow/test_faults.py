"""A fault of the user's own code is shown untouched, at once, with exit code 3.

How each fault is found has its tests beside the code: `tests/torch/trial/test_task`,
`tests/processes/trial/test_describe` and `tests/unit/tuning/test_tune`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slow.harness import MLP, autotune, left

pytestmark = pytest.mark.torch

FAULTS = {
    "import": (3, "import not_a_module\n" + MLP, "ModuleNotFoundError: No module named 'not_a_module'"),
    "shape": (3, MLP.replace("nn.Linear(32, 64)", "nn.Linear(33, 64)"), "mat1 and mat2 shapes cannot be multiplied"),
    "current": (2, MLP.replace("batch_size=64", "batch_size=0"), 'CURRENT["batch_size"] = 0'),
}
"""Exit code, task file, what is said: a fault while loading, one in the first step, and one of usage."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_users_code_ends_at_once(tmp_path: Path, name: str) -> None:
    code, source, words = FAULTS[name]
    (tmp_path / "model.py").write_text(source)
    done = autotune(tmp_path, "tune", "model.py", "--budget", "10m", "--json")
    assert done.code == code, done.err
    assert words in done.err
    assert json.loads(done.out)["exit_code"] == code
    assert not list(tmp_path.rglob("*.yaml"))
    assert left(0.0) == set()
    assert ("model.py" in done.err) == (code == 3)
    assert "autotune/trial" not in done.err
