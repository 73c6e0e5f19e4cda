"""`autotune run`: from a profile to the command line and environment that start training."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from autotune.core.clamp import clamp, with_processes
from autotune.core.errors import UsageError
from autotune.core.machine import machine_type
from autotune.launch.command import command
from autotune.launch.environment import environment, scrub
from autotune.store import registry
from autotune.store.profiles import read
from probes.inventory import probe
from probes.software import mpiexec
from probes.system import System


@dataclass(frozen=True)
class Launch:
    """Everything that starting needs, printable as a shell line that works without this tool."""

    command: list[str]
    environment: dict[str, str]
    added: dict[str, str]
    notes: tuple[str, ...]

    def shell(self) -> str:
        """One shell line."""
        return " ".join(
            [*(f"{name}={shlex.quote(value)}" for name, value in self.added.items()), shlex.join(self.command)]
        )


def prepare(
    script: Path, arguments: list[str], profile: Path | None, level: str | None, processes: int | None = None
) -> Launch:
    """What `autotune run` starts.

    Args:
        script: the training script.
        arguments: its own.
        profile: the profile; the best for this machine and script where None.
        level: ``safe``, ``amp`` or ``max``; what the profile recommends where None.
        processes: how many processes, in place of the profile's; the global batch stays.

    Raises:
        UsageError: no such script, no profile for this machine, no such level, or no processes.
    """
    if processes is not None and processes < 1:
        raise UsageError(f"--nproc {processes}: must be at least 1")
    if not script.is_file():
        raise UsageError(f"{script}: no such script")
    inventory = probe()
    if profile is None:
        match = registry.find(machine_type(inventory), script.stem)
        if match is None:
            raise UsageError(
                f"no profile fits this machine and {script.stem}; make one from a task file: autotune tune model.py"
            )
        profile = match.path
    found = read(profile)
    if level is not None and level not in found.levels:
        raise UsageError(f"--level {level}: the profile has {', '.join(found.levels)}")
    wanted = found.level(level).settings
    if processes is not None:
        wanted = with_processes(wanted, processes, inventory)
    settings, notes = clamp(wanted, inventory)
    base = scrub(os.environ)
    added = environment(settings, inventory, base)
    variables = added.set | {"AUTOTUNE_PROFILE": str(profile.resolve())} | ({"AUTOTUNE_LEVEL": level} if level else {})
    said = (*notes, *(kept.note for kept in added.kept), *(f"{knob}: {why}" for knob, why in added.not_applied))
    line = command(settings, str(script), arguments, sys.executable, mpiexec(System()) or "mpiexec")
    return Launch(line, base | variables, variables, said)
