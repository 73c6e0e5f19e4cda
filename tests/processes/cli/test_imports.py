"""What a fresh process of the command line imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROBES = """
import contextlib, sys
import autotune.cli, autotune.knobs.space, autotune.profiles.registry
with contextlib.suppress(SystemExit):
    autotune.cli.main(["probe", "--json"])
sys.exit(str(sorted({"torch", "optuna", "numpy"} & set(sys.modules)) or ""))
"""


@pytest.mark.torch
def test_probe_asks_torch_in_a_child_only() -> None:
    """B07: the parent of trials imports neither torch nor Optuna by chance."""
    done = subprocess.run([sys.executable, "-c", PROBES], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stderr.strip() == ""
    data = json.loads(done.stdout)
    assert data["key"]
    assert data["software"]["torch"]
