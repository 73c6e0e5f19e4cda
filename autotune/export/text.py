"""A profile's level for another launcher or trainer, fitted to this machine: what ``autotune export`` prints."""

from __future__ import annotations

import shlex
from pathlib import Path

from autotune.export import targets
from autotune.knobs import affinity as binding
from autotune.knobs.backend import BACKENDS
from autotune.knobs.exported import Plan
from autotune.knobs.malloc import GLIBC_VARIABLES
from autotune.knobs.settings import Settings
from autotune.launch.command import TORCHRUN_MODULE, command, system_tools
from autotune.launch.environment import environment
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles.clamp import clamp, for_this_machine
from autotune.profiles.file import read
from autotune.report.levels import batch_note

TORCHRUN = ["python", "-m", TORCHRUN_MODULE]


def exported(path: Path, level: str | None, to: str) -> str:
    """Return a level of the profile at ``path`` for the target ``to``.

    Raises:
        UsageError: no such target, or no such level.
    """
    target, profile = targets.target_of(to), read(path)
    name = profile.checked_level(level)
    inventory = probe()
    wanted, grown = for_this_machine(profile, name, inventory)
    settings, notes = clamp(wanted, inventory)
    head = [
        f"level {name} of {path} ({profile.target.name}): {target.what}",
        *grown,
        *notes,
        *filter(None, [batch_note(profile, profile.levels[name])]),
    ]
    return targets.text(target, plan_of(settings, profile.target.device, inventory), head)


def plan_of(settings: Settings, device: str, inventory: Inventory) -> Plan:
    """Return ``settings`` with the environment and the command that torchrun needs for them on this machine."""
    row = BACKENDS[settings.backend] if settings.backend else None
    exchange = "gloo" if row is not None and row.module else settings.backend
    started = settings.but(backend=exchange)
    added = environment(started, inventory, {})
    words = command(started, "train.py", (), "python", binder=system_tools(binding.plan(started, inventory)))
    words = ["torchrun", *words[3:]] if words[:3] == TORCHRUN else words
    malloc = GLIBC_VARIABLES if settings.malloc == "keep" else {}
    return Plan(
        settings=settings,
        device=device,
        gpus=len(inventory.gpus),
        environment={"OMP_NUM_THREADS": str(settings.threads), **added.set, **malloc},
        missing=dict(added.not_applied),
        command=shlex.join(words),
        exchange=exchange,
    )
