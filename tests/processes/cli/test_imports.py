"""What a fresh process of the command line imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def fresh(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python ``code`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


"""B07: the parent of trials imports neither torch nor Optuna by chance."""

HEAVY = "print(sorted(name for name in ('torch', 'optuna', 'numpy') if name in sys.modules))"


@pytest.mark.parametrize("module", ["autotune", "autotune.cli", "autotune.knobs.space", "autotune.profiles.registry"])
def test_are_light(module: str) -> None:
    done = fresh(f"import sys, {module}; {HEAVY}")
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.torch
def test_probe_asks_torch_in_a_child_only() -> None:
    done = fresh(
        "import sys, contextlib, autotune.cli as cli\n"
        "with contextlib.suppress(SystemExit): cli.main(['probe', '--json'])\n"
        "assert 'torch' not in sys.modules and 'optuna' not in sys.modules, 'imported'"
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["key"]
    assert data["software"]["torch"]
