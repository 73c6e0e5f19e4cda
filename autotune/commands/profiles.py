"""``autotune profiles``: the profiles on this machine."""

from __future__ import annotations

import sys

from autotune.core.machine import machine_type
from autotune.core.near import did_you_mean
from autotune.probes import inventory
from autotune.store import registry


def list_profiles() -> None:
    """Print every profile, and every file that should be one."""
    found = registry.list_profiles()
    if not found:
        print(
            f"no profiles in {' or '.join(map(str, registry.default_roots()))}; make one: autotune tune train.py",
            file=sys.stderr,
        )
    for item in found:
        profile = item.profile
        print(f"{item.path}  {profile.target.name} on {profile.key}" if profile else item.problem)


def match(target: str | None) -> bool:
    """Print which profile `autotune.load()` would take here; False if none fits."""
    machine = machine_type(inventory.probe())
    found = registry.search(machine, target)
    best = found.match
    if best is None:
        wanted = f" and {target}{did_you_mean(target, registry.targets(machine))}" if target else ""
        print(f"no profile fits {machine.key}{wanted}; make one: autotune tune train.py")
    else:
        print(f"{best.path} ({'exact' if best.exact else 'compatible'})")
    for note in best.notes if best else found.notes:
        print(f"  {note}")
    return best is not None
