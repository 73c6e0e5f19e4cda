"""``autotune export``: a profile in the words of other launchers and trainers."""

from __future__ import annotations

import shlex
from pathlib import Path

from autotune.export import table
from autotune.export.target import Plan
from autotune.knobs import affinity as binding
from autotune.knobs.backend import BACKENDS
from autotune.knobs.clamp import clamp, for_this_machine
from autotune.knobs.settings import Settings
from autotune.launch.command import command, system_tools
from autotune.launch.environment import environment
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles.file import read
from autotune.report.verdict import batch_note

TORCHRUN = ["python", "-m", "torch.distributed.run"]


def export(path: Path, level: str | None, to: str) -> None:
    """Print a level of the profile at ``path`` for the target ``to``.

    Raises:
        UsageError: no such target, or no such level.
    """
    target, profile = table.target_of(to), read(path)
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
    print(table.text(target, plan_of(settings, profile.target.device, inventory), head))


def plan_of(settings: Settings, device: str, inventory: Inventory) -> Plan:
    """``settings`` with the environment and the command that torchrun needs for them on this machine."""
    row = BACKENDS[settings.backend] if settings.backend else None
    exchange = "gloo" if row is not None and row.module else settings.backend
    started = settings.but(backend=exchange)
    added = environment(started, inventory, {})
    words = command(started, "train.py", (), "python", binder=system_tools(binding.plan(started, inventory)))
    words = ["torchrun", *words[3:]] if words[:3] == TORCHRUN else words
    return Plan(
        settings=settings,
        device=device,
        gpus=len(inventory.gpus),
        environment=added.set,
        missing=dict(added.not_applied),
        command=shlex.join(words),
        exchange=exchange,
    )
