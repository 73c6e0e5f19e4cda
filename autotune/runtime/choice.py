"""From profiles to the settings that fit here and now: file, level, start, machine, and the user's own variables."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autotune import project
from autotune.environment import LEVEL, PROFILE
from autotune.errors import UsageError, did_you_mean
from autotune.knobs.binding import plan_of
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.stated import own_threads
from autotune.knobs.task_facts import Fingerprint
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.probes.system import System
from autotune.profiles import registry
from autotune.profiles.clamp import clamp, for_this_machine, launched, one_process
from autotune.profiles.format import Profile
from autotune.profiles.match import NONE, Here
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


def choose(
    path_or_url: str | Path | None, target: str | None, level: str | None, environment: Mapping[str, str]
) -> Choice:
    """Return what to apply of the profile in the argument, else in ``AUTOTUNE_PROFILE``, else of the best match.

    Raises:
        UsageError: there is no such ``level``.
        ProfileError: the profile that was asked for cannot be read.
    """
    if level is not None and level not in LEVELS:
        raise UsageError(_no_level(level, LEVELS))
    # the whole training may use these CPUs, also if this process is bound to some of them
    inventory = probe(System(allowed=plan_of(environment).allowed), quick=True)
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    script = Path(main) if main else None  # none in notebooks and prompts
    named = str(path_or_url or environment.get(PROFILE, "").strip())
    if named:
        best = registry.of_file(named, Here.on(inventory))
        origin = f"{'argument' if path_or_url else PROFILE}: {best.source}"
        found = registry.Lookup(best, best.sentence if best.verdict == NONE else "")
    else:
        names = (target,) if target else project.names_of(script) if script else ()
        found = registry.search(Here.on(inventory, *names), script=script)
        origin = f"found: {found.best.source}" if found.best else ""
    if found.match is None:
        return Choice(notes=(f"training runs without a profile: {found.reason}", *found.notes))
    profile = found.match.profile
    choice = decide(profile, origin, level, environment, inventory)
    notes = (*filter(None, [found.match.sentence]), *found.notes, *choice.notes)
    return replace(choice, notes=notes, compared=profile.target.compared)


def decide(
    profile: Profile, origin: str, level: str | None, environment: Mapping[str, str], inventory: Inventory
) -> Choice:
    """Return settings of ``profile`` for this machine. ``level`` before ``AUTOTUNE_LEVEL`` before the profile."""
    asked = level or environment.get(LEVEL)
    name, known = profile.default_level, list[str]()
    if asked and asked in profile.levels:
        name = asked
    elif asked:
        known.append(f"{_no_level(asked, profile.levels)}; using {name}")
    if not asked and (why := profile.unproven(name) or profile.unfelt(name)):
        return Choice(notes=(f"training runs without a profile: {why}",))
    alone = world_size(environment) == 1
    wanted, grown = for_this_machine(profile, name, inventory) if alone else (profile.level(name).settings, ())
    settings, said = _as_started(wanted, environment, inventory)
    settings, own = own_threads(settings, environment)
    notes = (*known, *_doubts(profile, name), *grown, *said, *own)
    return Choice(settings, name, origin, notes, profile.target.device)


def _no_level(name: str, levels: Collection[str]) -> str:
    return f"there is no level {name!r}: levels are {', '.join(levels)}{did_you_mean(name, levels)}"


def _doubts(profile: Profile, level: str) -> tuple[str, ...]:
    """Return a warning if ``level`` is not proven."""
    result = profile.levels[level]
    if profile.evidence.partial:
        return ("the profile comes from an interrupted run: nothing in it is proven; autotune tune --resume goes on",)
    if result.proven or result.settings == profile.baseline:
        return ()
    reason = f" ({result.note})" if result.note else ""
    return (f"level {level} is not proven to be faster than the baseline{reason}",)


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
