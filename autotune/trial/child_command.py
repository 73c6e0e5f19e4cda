"""The command line of a trial's processes: all that the parent knows of `autotune.trial.child`."""

from __future__ import annotations

import sys
from pathlib import Path

BOOT = "import sys; sys.path[0] = sys.argv[1]; from autotune.trial.child.{} import main; main(sys.argv[2:])"
"""Starts in any working folder without adding that folder to the module path."""
ROOT = str(Path(__file__).resolve().parents[2])


def child_command(module: str, *arguments: str) -> list[str]:
    """The command line that calls ``main`` of a ``module`` of `autotune.trial.child`: ``zygote`` or ``leader``."""
    return [sys.executable, "-c", BOOT.format(module), ROOT, *arguments]
