"""Contenders that search nothing here: PyTorch's defaults, and the best of a grid that was recorded before."""

from __future__ import annotations

import json
from pathlib import Path

from autotune.knobs.baseline import baseline_settings
from autotune.knobs.settings import Settings
from benchmarks.rivals.history import Choice, Method, Point
from benchmarks.rivals.stage import Stage

DEFAULTS = "PyTorch's defaults"
GRID = "exhaustive grid"


def defaults(stage: Stage, budget: float) -> list[Method]:
    """Today's batch, and everything else as PyTorch has it."""
    batch = {"batch_size": stage.current.global_batch}
    facts = stage.facts.__class__(**{**vars(stage.facts), "current": batch})
    settings = baseline_settings(facts, stage.inventory)
    return [Method(DEFAULTS, "safe", (Point(0.0, Choice(settings)),))]


def grid(stage: Stage, path: Path) -> list[Method]:
    """The best settings of a recorded grid: JSON of settings, or of settings by level."""
    data = json.loads(path.read_text("utf-8"))
    by_level = data if data.keys() <= stage.spaces.keys() else {stage.level: data}
    return [_best(level, found.get("settings", found), len(by_level) > 1) for level, found in by_level.items()]


def _best(level: str, settings: dict, several: bool) -> Method:
    name = f"{GRID} {level}" if several else GRID
    return Method(name, level, (Point(0.0, Choice(Settings.from_dict(settings))),))
