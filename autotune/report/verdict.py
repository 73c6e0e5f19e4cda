"""What a level's figures mean, in plain words. "No gain" and "cannot tell" are results like any other."""

from __future__ import annotations

import math
from typing import Any

from autotune.knobs.knob import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.table import BY_NAME
from autotune.profiles.format import LevelResult, Profile
from autotune.report import formatting

NO_GAIN = "no gain: keep your settings"
CANNOT_TELL = "cannot tell: the difference is within the noise, keep your settings"


def verdict(profile: Profile, name: str) -> tuple[str, str]:
    """``(headline, detail)`` of level ``name``; the detail may be empty."""
    result = profile.levels[name]
    if result.proven:
        return formatting.gain(result.speedup), result.note
    same = _same_below(profile, name)
    if same:
        return f"nothing beyond {same}", result.note
    if result.settings != profile.baseline:
        return f"not proven: {formatting.interval(result.speedup)}", result.note
    if result.speedup.rounds:
        return CANNOT_TELL if result.speedup.undecided else NO_GAIN, _joined(
            formatting.interval(result.speedup), result.note
        )
    headline, colon, detail = result.note.partition(": ")
    return (f"{headline}: keep your settings", detail) if colon else (NO_GAIN, result.note)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def to_apply(profile: Profile) -> bool:
    """True where the recommended level differs from what the user runs."""
    return profile.level().settings != profile.baseline


def changed(settings: Settings, baseline: Settings) -> list[tuple[str, Any, Any, str]]:
    """``(knob, before, after, why)`` for every knob that differs, in the knob table's order."""
    moved = [(BY_NAME[name], before, after) for name, (after, before) in settings.difference(baseline).items()]
    return [(knob.name, before, after, knob.reason(before, after, settings)) for knob, before, after in moved]


def batch_note(profile: Profile, result: LevelResult) -> str:
    """What a changed global batch means for the training; empty where the batch is the user's own.

    The rules of thumb: learning rate times the square root of the batch's factor for Adam kinds (Malladi et al. 2022),
    times the factor for SGD (Goyal et al. 2017).
    """
    before, after = profile.baseline.global_batch, result.settings.global_batch
    if before == after:
        return ""
    factor, samples = after / before, profile.target.samples
    steps = ""
    if samples:
        steps = f", {math.ceil(samples / before)} -> {math.ceil(samples / after)} steps per epoch"
    return (
        f"the global batch goes from {before} to {after}{steps}. The learning rate needs another look:"
        f" try {formatting.number(math.sqrt(factor))} times yours for Adam kinds (sqrt rule),"
        f" {formatting.number(factor)} times for SGD (linear rule), with warm-up."
    )


def _same_below(profile: Profile, name: str) -> str:
    """The nearest lower level with the same, proven settings; empty where there is none."""
    for lower in reversed(LEVELS[: LEVELS.index(name)]):
        below = profile.levels.get(lower)
        if below is not None and below.proven and below.settings == profile.levels[name].settings:
            return lower
    return ""
