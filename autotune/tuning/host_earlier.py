"""What an earlier run found for the same target, on this machine or one like it: a new search begins there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.knobs.clamp import clamp
from autotune.knobs.knob import LEVELS, includes
from autotune.knobs.settings import Settings
from autotune.probes.facts import Inventory
from autotune.profiles import registry
from autotune.profiles.match import Here
from autotune.profiles.places import places
from autotune.trial.target import Target


@dataclass(frozen=True)
class Earlier:
    """Settings of an earlier profile that fit this machine, by the levels that allow them. They are claims of another
    day: a new run measures and proves them like any others."""

    settings: Mapping[str, tuple[Settings, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def earlier_profile(target: Target, inventory: Inventory) -> Earlier:
    """The profile of ``target`` that fits this machine best; empty where there is none. Never raises."""
    found = registry.search(Here.on(inventory, target.name), places(os.environ, target.path))
    best = found.match or found.similar
    if best is None:
        return Earlier()
    fitted = {name: clamp(result.settings, inventory)[0] for name, result in best.profile.levels.items()}
    settings = {
        level: tuple(dict.fromkeys(own for name, own in fitted.items() if includes(level, name))) for level in LEVELS
    }
    written = f" of {best.profile.written.date}" if best.profile.written else ""
    return Earlier(settings, (f"the search began with the settings of an earlier profile{written} ({best.verdict})",))
