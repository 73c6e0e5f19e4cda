"""From profiles to the settings that fit here and now: which file, level, start, machine, and the user's own words."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from autotune.environment import PROFILE, overrides
from autotune.errors import ProfileError, UsageError
from autotune.knobs.binding import plan_of
from autotune.knobs.compile import CACHE_VARIABLE, COMPILED_FOLDER, use_cache
from autotune.knobs.knob import LEVELS, includes
from autotune.knobs.settings import BY_NAME, Settings
from autotune.knobs.task import Fingerprint
from autotune.launch.command import own_threads
from autotune.near import did_you_mean
from autotune.probes import budget, cpu, gpu, memory
from autotune.probes.facts import Inventory, ResourceLimits, Software
from autotune.probes.system import System
from autotune.profiles import file as profiles
from autotune.profiles import registry
from autotune.profiles.clamp import clamp, for_this_machine, launched, one_process
from autotune.profiles.format import Profile
from autotune.profiles.match import NONE, Comparison, Here, compare
from autotune.profiles.places import is_url, not_there, places
from autotune.runtime.processes import world_size


@dataclass(frozen=True)
class Choice:
    """The settings that `load` has chosen. ``settings`` are None for baseline behaviour."""

    settings: Settings | None = None
    level: str | None = None
    origin: str = "defaults"
    notes: tuple[str, ...] = ()
    device: str | None = None
    """The device that was tuned; None for whatever there is."""
    compared: Fingerprint | None = None
    """What tuning has compared with plain PyTorch: nothing else is changed."""


@dataclass(frozen=True)
class Found:
    """The profile to take, and where it comes from; no profile, and why."""

    profile: Profile | None
    origin: str = "defaults"
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = None
    """Of the profile with this machine."""


def choose(
    path_or_url: str | Path | None, target: str | None, level: str | None, environment: Mapping[str, str]
) -> Choice:
    """Return what to apply of the profile that `find` gives.

    Raises:
        UsageError: there is no such ``level``.
        ProfileError: the profile that was asked for cannot be read.
    """
    if level is not None and level not in LEVELS:
        raise UsageError(f"there is no level {level!r}: levels are {', '.join(LEVELS)}{did_you_mean(level, LEVELS)}")
    inventory = _inventory(plan_of(environment).allowed)
    found = find(path_or_url, target, environment, inventory)
    if found.profile is None or (found.comparison is not None and found.comparison.verdict == NONE):
        first, *others = found.notes
        return Choice(notes=(f"training runs without a profile: {first}", *others))
    choice = decide(found.profile, found.origin, level, environment, inventory)
    return replace(choice, notes=(*found.notes, *choice.notes), compared=found.profile.target.compared)


def find(
    path_or_url: str | Path | None, target: str | None, environment: Mapping[str, str], inventory: Inventory
) -> Found:
    """Find the profile: argument before environment before the best match before nothing."""
    here = Here.on(inventory)
    for origin, path in (("argument", path_or_url), (PROFILE, overrides(environment).profile)):
        if path:
            if is_url(str(path)):
                raise ProfileError(f"{path}: load never downloads; fetch the file first: autotune profiles pull URL")
            profile = profiles.read(path)
            comparison = compare(profile, here)
            notes = tuple(filter(None, [comparison.sentence]))
            return Found(profile, f"{origin}: {path}", notes, comparison)
    script = _script()
    target = target or (script.stem if script else None)
    search = registry.search(replace(here, target=target), places(environment, script))
    if search.match is None:
        return Found(None, notes=(*_missing(target, search.best), *search.notes, *not_there(environment)))
    comparison = search.match.comparison
    notes = (*filter(None, [comparison.sentence]), *search.notes)
    return Found(search.match.profile, f"found: {search.match.source}", notes, comparison)


def _missing(target: str | None, similar: registry.Match | None) -> tuple[str, ...]:
    """Say that no profile can be applied, and what to do."""
    if target is None:
        return ()
    if similar is None:
        return (f"no profile fits this machine and {target}; autotune tune makes one",)
    return (f"{similar.source} is not applied by itself: {similar.comparison.sentence}",)


def decide(
    profile: Profile, origin: str, level: str | None, environment: Mapping[str, str], inventory: Inventory
) -> Choice:
    """Return settings of ``profile`` for this machine. ``level`` before ``AUTOTUNE_LEVEL`` before the profile."""
    name, notes = pick_level(profile, level or overrides(environment).level)
    result = profile.levels[name]
    alone = world_size(environment) == 1
    wanted, grown = for_this_machine(profile, name, inventory) if alone else (result.settings, ())
    settings, said = _as_started(wanted, environment, inventory)
    settings, own = own_threads(settings, environment)
    notes = (*notes, *_doubts(profile, name), *grown, *said, *own)
    return Choice(settings, name, origin, notes, profile.target.device)


def pick_level(profile: Profile, wanted: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the level to apply, and a note if it is not the one ``wanted``. Never a higher one."""
    if wanted is None or wanted in profile.levels:
        return wanted or profile.recommended, ()
    if wanted not in LEVELS:
        return profile.recommended, (
            f"there is no level {wanted!r} (levels are {', '.join(LEVELS)}); using {profile.recommended}",
        )
    below = [name for name in LEVELS if name in profile.levels and includes(wanted, name)]
    found = below[-1] if below else profile.recommended
    return found, (f"the profile has no level {wanted}; using {found}",)


def _doubts(profile: Profile, level: str) -> tuple[str, ...]:
    """Return what is not proven about ``level``, or is more than it allows: ``tune --fix`` and editors can."""
    result, found = profile.levels[level], []
    changed = result.settings.difference(profile.baseline)
    above = [f"{n} {v}" for n, (v, _) in changed.items() if not includes(level, BY_NAME[n].level)]
    if above:
        found.append(f"level {level} of the profile sets {', '.join(above)}, which changes results")
    if profile.evidence.partial:
        found.append(
            "the profile comes from an interrupted run and nothing in it is proven; autotune tune --resume goes on"
        )
    elif not result.proven:
        reason = f" ({result.note})" if result.note else ""
        found.append(f"level {level} is not proven to be faster than the baseline{reason}")
    return tuple(found)


def _as_started(
    settings: Settings, environment: Mapping[str, str], inventory: Inventory
) -> tuple[Settings, tuple[str, ...]]:
    world = world_size(environment)
    if world > 1:
        local = int(environment.get("LOCAL_WORLD_SIZE", world))
        return launched(settings, inventory, world, local)
    fitted, said = clamp(settings, inventory)
    if fitted.processes == 1:
        return fitted, said
    alone, said = clamp(one_process(settings, inventory), inventory)
    command = "autotune run --profile P train.py ..."
    note = f"the profile is for {settings.processes} processes, this is one; start them with: {command}"
    return alone, (note, *said)


def _script() -> Path | None:
    """Return the running script; None in notebooks and prompts."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(path) if path else None


def _inventory(allowed: tuple[int, ...] = ()) -> Inventory:
    """Probe what clamping and matching need, without the probes that start a process: this one has PyTorch already.

    Args:
        allowed: the CPUs of the whole training, where `autotune run` has bound this process to some of them.
    """
    system = System()
    processors = cpu.probe(system)
    return Inventory(
        cpu=processors,
        budget=budget.probe(system, processors, frozenset(allowed) or None),
        memory=memory.probe(system),
        gpus=gpu.probe(system) if torch.cuda.is_available() else (),
        limits=ResourceLimits(None),
        software=Software(platform.python_version(), sys.platform, str(torch.__version__), torch.version.cuda),
    )


def take_compiled(settings: Settings | None) -> Callable[[], None]:
    """Let PyTorch's compiler look first where tuning has kept what it compiled. Returns how to undo it."""
    cache = System().cache_folder() if settings is not None and settings.compile != "off" else None
    if cache is None or CACHE_VARIABLE in os.environ:
        return lambda: None
    return use_cache(str(cache / COMPILED_FOLDER))
