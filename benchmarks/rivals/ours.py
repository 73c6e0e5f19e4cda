"""autotune itself, as a user starts it: from the shell to the written profile."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import yaml

from autotune.knobs.settings import Settings
from benchmarks.rivals.history import Choice, Method, Point
from benchmarks.rivals.measuring import run
from benchmarks.rivals.stage import Stage

NAME = "autotune"
GRACE = 30.0
"""Seconds beyond the budget until the run counts as hanging; what it takes is what is reported."""


def methods(stage: Stage, budget: float) -> list[Method]:
    """One run gives all three levels, at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.yaml"
        line = [sys.executable, "tune.py", str(stage.task), "--budget", f"{budget:g}s", "--profile", str(path)]
        started = time.monotonic()
        run([([*line, "--seed", str(stage.seed)], {})], os.environ, budget + GRACE)
        seconds = time.monotonic() - started
        profile = yaml.safe_load(path.read_text("utf-8"))
    return [_method(stage, level, found, seconds) for level, found in profile["levels"].items()]


def _method(stage: Stage, level: str, found: dict, seconds: float) -> Method:
    choice = Choice(Settings.from_dict(found["settings"]))
    claim = found["speedup"]
    note = f"claims {claim['value']:.2f}x ({claim['low']:.2f} to {claim['high']:.2f})"
    timeline = (Point(0.0, Choice(stage.current)), Point(seconds, choice))
    return Method(f"{NAME} {level}", level, timeline, note=note)
