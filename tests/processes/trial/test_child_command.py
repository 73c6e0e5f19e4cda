"""How a process of a trial is started, in whatever folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from autotune.trial.process_tree import child_command


def test_the_working_folder_shadows_no_module(tmp_path: Path) -> None:
    for name in ("autotune", "json", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    done = subprocess.run(
        child_command("launcher", "not a number", "{}"), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "the wrong module" not in done.stderr
    assert "autotune/trial/child/launcher.py" in done.stderr, "it came as far as its arguments"
