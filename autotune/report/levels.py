"""Says what a level's figures mean, in plain words. "No gain" and "cannot tell" are results like any other."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

from autotune.knobs.knob import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.table import BY_NAME
from autotune.profiles.format import LevelResult, Profile
from autotune.report import formatting


class Standing(Enum):
    """The worth of a level."""

    GAIN = "gain"
    REPEATS = "repeats"
    """It has the settings of a lower level, which are proven."""
    UNPROVEN = "unproven"
    """It has settings of its own, as an interrupted run saves them."""
    NO_GAIN = "no gain"
    OPEN = "open"
    DOUBTED = "doubted"
    """Proven, but more than is physically possible."""
    KEEPS = "keeps"
    """The baseline's settings, and no proof of its own: the level's note says why."""


HEADLINES = {
    Standing.REPEATS: "nothing beyond {below} was proven; uses {below}'s settings",
    Standing.UNPROVEN: "not proven: {interval}",
    Standing.NO_GAIN: "no gain: keep your settings",
    Standing.OPEN: "cannot tell: the difference is within the noise, keep your settings",
    Standing.DOUBTED: "not believable: {interval}",
    Standing.KEEPS: "{verdict}: keep your settings",
}


def standing(profile: Profile, name: str) -> Standing:
    """Return what level ``name`` is worth."""
    result = profile.levels[name]
    if name in profile.impossible():
        return Standing.DOUBTED
    if result.proven:
        return Standing.REPEATS if below(profile, name) else Standing.GAIN
    if result.settings != profile.baseline:
        return Standing.UNPROVEN
    if not result.speedup.rounds:
        return Standing.KEEPS
    return Standing.OPEN if result.speedup.undecided else Standing.NO_GAIN


def verdict(profile: Profile, name: str) -> tuple[str, str]:
    """Return ``(headline, detail)`` of level ``name``; the detail may be empty."""
    result, found = profile.levels[name], standing(profile, name)
    if found is Standing.GAIN:
        return formatting.gain(result.speedup), result.note
    interval = formatting.interval(result.speedup)
    headline = HEADLINES[found].format(
        below=below(profile, name), interval=interval, verdict=result.verdict or "no proven gain"
    )
    measured = interval if found in (Standing.NO_GAIN, Standing.OPEN) and result.speedup.rounds else ""
    return headline, "; ".join(filter(None, (measured, result.note)))


def recommended(profile: Profile) -> str | None:
    """Return the level to recommend: the lowest with the settings of the profile's; None if there is nothing to apply.

    A level that crashed, was never tried or brought nothing is not recommended, though it be the one to look at.
    """
    doubted = standing(profile, profile.recommended) is Standing.DOUBTED
    if doubted or not (to_apply(profile) and profile.is_felt(profile.recommended)):
        return None
    return below(profile, profile.recommended) or profile.recommended


def to_apply(profile: Profile) -> bool:
    """Return True if the recommended level differs from what the user runs."""
    return profile.level().settings != profile.baseline


def whole_run(profile: Profile) -> str:
    """Return what the recommended level brings the whole run, in words; empty if nobody knows."""
    run, step = profile.evidence.run, profile.level().speedup.value
    gain = run.speedup(step) if run is not None and to_apply(profile) else None
    if run is None or gain is None:
        return ""
    share, before, after = run.other_share or 0.0, run.seconds(), run.seconds(step)
    if before is None or after is None or run.steps is None:
        return f"about {formatting.times(gain)} from epoch to epoch: {share:.0%} of it is evaluation and the like"
    steps = run.steps * run.step_seconds
    rest = f"{formatting.duration(run.start_seconds)} until it trains"
    if run.other_share is not None:
        rest += f", {formatting.duration(before - run.start_seconds - steps)} evaluation and the like"
    found = f"about {formatting.times(gain)}: {formatting.duration(before)} -> {formatting.duration(after)} ({rest})"
    return found if steps >= before / 2 else f"most of it is not training; {found}"


def below(profile: Profile, name: str) -> str:
    """Return the lowest level below ``name`` with the same settings; empty if there is none."""
    settings = profile.levels[name].settings
    lower = (each for each in LEVELS[: LEVELS.index(name)] if each in profile.levels)
    return next((each for each in lower if profile.levels[each].settings == settings), "")


def changed(settings: Settings, baseline: Settings) -> list[tuple[str, Any, Any, str]]:
    """Return ``(knob, before, after, why)`` for every knob that differs, in the knob table's order."""
    moved = [(BY_NAME[name], before, after) for name, (after, before) in settings.difference(baseline).items()]
    return [(knob.name, before, after, knob.reason(before, after, settings)) for knob, before, after in moved]


def batch_note(profile: Profile, result: LevelResult) -> str:
    """Return what a changed global batch means for the training; empty if the batch is the user's own.

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
