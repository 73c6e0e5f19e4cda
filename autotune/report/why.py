"""Why the changed knobs help: one short phrase each, from the knob table."""

from __future__ import annotations

from typing import Any

from autotune.knobs.settings import Settings
from autotune.knobs.table import BY_NAME


def changed(settings: Settings, baseline: Settings) -> list[tuple[str, Any, Any, str]]:
    """``(knob, before, after, why)`` for every knob that differs, in the knob table's order."""
    moved = [(BY_NAME[name], before, after) for name, (after, before) in settings.difference(baseline).items()]
    return [(knob.name, before, after, knob.reason(before, after, settings)) for knob, before, after in moved]
