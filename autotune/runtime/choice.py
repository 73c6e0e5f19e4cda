"""From a profile to the settings that fit here and now: level, start, machine, and the user's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.clamp import clamp, launched, one_process
from autotune.core.knobs import LEVELS, includes
from autotune.core.profile import Profile
from autotune.core.settings import Settings
from autotune.runtime.processes import world_size
from probes.facts import Inventory


@dataclass(frozen=True)
class Choice:
    """What `load` settled on. ``settings`` are None for baseline behaviour."""

    settings: Settings | None = None
    level: str | None = None
    origin: str = "defaults"
    notes: tuple[str, ...] = ()
    device: str | None = None
    """The device that was tuned; None for whatever there is."""
    step_seconds: float | None = None
    """What one optimizer step should take, where the settings are exactly the measured ones."""


def decide(
    profile: Profile, origin: str, level: str | None, environment: Mapping[str, str], inventory: Inventory
) -> Choice:
    """Settings of ``profile`` for this machine and start. ``level`` before ``AUTOTUNE_LEVEL`` before the profile."""
    name, notes = pick_level(profile, level or environment.get("AUTOTUNE_LEVEL") or None)
    result = profile.levels[name]
    settings, said = _as_started(result.settings, environment, inventory)
    settings, own = own_threads(settings, environment)
    step = None
    if settings == result.settings and profile.target.unit == "samples" and result.rate > 0:
        step = settings.global_batch / result.rate
    device = profile.target.device if inventory.gpus else "cpu"
    return Choice(settings, name, origin, (*notes, *said, *own), device, step)


def pick_level(profile: Profile, wanted: str | None) -> tuple[str, tuple[str, ...]]:
    """The level to apply, and what to say where it is not the one ``wanted``. Never a higher one."""
    if wanted is None or wanted in profile.levels:
        return wanted or profile.recommended, ()
    if wanted not in LEVELS:
        return profile.recommended, (
            f"there is no level {wanted!r} (levels are {', '.join(LEVELS)}); using {profile.recommended}",
        )
    below = [name for name in LEVELS if name in profile.levels and includes(wanted, name)]
    found = below[-1] if below else profile.recommended
    return found, (f"the profile has no level {wanted}; using {found}",)


def _as_started(
    settings: Settings, environment: Mapping[str, str], inventory: Inventory
) -> tuple[Settings, tuple[str, ...]]:
    world = world_size(environment)
    if world > 1:
        local = int(environment.get("LOCAL_WORLD_SIZE", world))
        return launched(settings, inventory, world, local)
    if settings.processes == 1:
        return clamp(settings, inventory)
    alone, said = clamp(one_process(settings, inventory), inventory)
    best, _notes = clamp(settings, inventory)
    if best.processes == 1:
        return best, clamp(settings, inventory)[1]
    command = "autotune run --profile P train.py ..."
    note = f"the profile is for {settings.processes} processes, this is one; start them with: {command}"
    return alone, (note, *said)


def own_threads(settings: Settings, environment: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """The user's OMP_NUM_THREADS before the profile's threads. torchrun's own default of 1 is not the user's word."""
    try:
        threads = int(environment.get("OMP_NUM_THREADS", ""))
    except ValueError:
        return settings, ()
    by_torchrun = threads == 1 and "TORCHELASTIC_RUN_ID" in environment
    if threads < 1 or threads == settings.threads or by_torchrun:
        return settings, ()
    return settings.but(threads=threads), (
        f"OMP_NUM_THREADS={threads} is kept; the profile would use {settings.threads} threads",
    )
