"""What the start prepares in a script's process, and when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.environment import SCRIPT_VARIABLE
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import Fingerprint
from autotune.launch.command import ENTRY
from autotune.scripts.apply import Order
from autotune.scripts.entry import startup

ROOT = Path(__file__).resolve().parents[4]


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_script_may_ask_for_load_before_it_imports_torch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import autotune\nprint(autotune.load.__name__)\n")
    order = Order(Settings(malloc="keep"), Settings(), Fingerprint(), device="cpu")
    done = run("-m", ENTRY, "gloo", str(script), **{SCRIPT_VARIABLE: order.as_text()})
    assert done.stdout == "load\n", done.stderr


def test_a_preparation_that_fails_ends_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('runs')\n")
    done = run(str(script), PYTHONPATH=startup.FOLDER, **{startup.BACKEND: "nonsense"})
    assert (done.returncode, done.stdout) == (1, "")
    assert "KeyError: 'nonsense'" in done.stderr


@pytest.mark.torch
def test_a_backend_is_in_place_as_soon_as_torch_is_there(tmp_path: Path) -> None:
    """A stand-in for oneCCL's module: what it registers is started, whatever the script names."""
    (tmp_path / "oneccl_bindings_for_pytorch.py").write_text(
        "import torch.distributed as dist\n"
        "def create(*_):\n"
        "    raise SystemExit('ccl was started')\n"
        "dist.Backend.register_backend('ccl', create, devices=['cpu'])\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        "from torch.distributed import init_process_group\n"
        "init_process_group('gloo', init_method='tcp://127.0.0.1:0', rank=0, world_size=1)\n"
    )
    done = run("-m", ENTRY, "ccl", str(script), PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ccl was started"), done.stderr
