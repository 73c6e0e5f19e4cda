"""Fit settings from another machine, or another way of starting, to this machine. Pure; never raises.

The global batch is always kept: fewer processes have larger shares of it.
"""

from __future__ import annotations

from autotune.knobs import binding
from autotune.knobs.backend import why_not_usable
from autotune.knobs.constraints import most_processes, with_processes, within
from autotune.knobs.settings import BY_NAME, KNOBS, Settings
from autotune.probes.facts import Inventory
from autotune.profiles.format import Profile


def clamp(settings: Settings, inventory: Inventory) -> tuple[Settings, tuple[str, ...]]:
    """Return ``settings`` within this machine's budget, and a line per knob that changed: "asked 16, applied 2"."""
    own, said = _on_device(settings, inventory)
    fitted, exchange = _with_backend(own, inventory)
    limit = most_processes(fitted, inventory)
    if fitted.processes > limit:
        processes = next(count for count in range(limit, 0, -1) if fitted.global_batch % count == 0)
        fitted = with_processes(fitted, processes, inventory)
    fitted = within(fitted, max(1, inventory.budget.threads // fitted.processes))
    fitted, unbound = _bindable(fitted, inventory)
    return fitted, (*exchange, *said, *changes(own, fitted, inventory.budget.limit), *unbound)


def for_this_machine(profile: Profile, level: str, inventory: Inventory) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings of ``level``, and a line if one process takes more threads than on a smaller machine.

    Tuning left its threads at that machine's default: nobody has measured that so few are right for a larger one.
    """
    settings, cores = profile.levels[level].settings, inventory.budget.cores
    default = profile.machine.cores
    kept = settings.processes == profile.baseline.processes == 1 and settings.threads == profile.baseline.threads
    if not kept or settings.threads != default or cores <= default or not profile.target.where.on_host:
        return settings, ()
    own = settings.but(threads=cores)
    return own, changes(settings, own, "tuning left the threads at the default; this is the default here")


def launched(settings: Settings, inventory: Inventory, world: int, local: int) -> tuple[Settings, tuple[str, ...]]:
    """Fit ``settings`` to a training that was started as ``world`` processes, ``local`` of them on this machine.

    The launcher has chosen the processes and may have bound each to its share of the CPUs. Then the budget seen here is
    one process's share. It is split again only if the profile was measured with another number of processes.
    """
    own, said = _on_device(settings, inventory)
    fitted, share = own, inventory.budget.threads
    if fitted.processes != local:
        share = max(1, share // max(1, local))
    if fitted.processes != world:
        fitted = with_processes(fitted, world, inventory, local)
    fitted = within(fitted, share)
    fitted, unbound = _bindable(fitted, inventory)
    return fitted, (*said, *changes(own, fitted, f"started as {world} processes"), *unbound)


def one_process(settings: Settings, inventory: Inventory) -> Settings:
    """Return ``settings`` for several processes as one process that uses the same cores and the same global batch."""
    return within(with_processes(settings, 1, inventory), inventory.budget.threads)


def changes(asked: Settings, applied: Settings, reason: str) -> tuple[str, ...]:
    """Return a line per knob that differs, without those that only follow from others."""
    different = asked.difference(applied).items()
    return tuple(
        f"{name}: asked {wanted}, applied {got} ({reason})"
        for name, (wanted, got) in different
        if not BY_NAME[name].dependent
    )


def _with_backend(settings: Settings, inventory: Inventory) -> tuple[Settings, tuple[str, ...]]:
    """Put gloo in the place of a backend that is missing here, and return a line that says so."""
    if settings.processes == 1 or settings.backend is None or not inventory.software.backends:
        return settings, ()
    reason = why_not_usable(inventory, settings.backend)
    if reason is None or inventory.gpus or why_not_usable(inventory, "gloo"):
        return settings, ()
    return settings.but(backend="gloo"), (f"backend: asked {settings.backend}, applied gloo ({reason})",)


def _bindable(settings: Settings, inventory: Inventory) -> tuple[Settings, tuple[str, ...]]:
    """Return unbound settings, and why, if this machine cannot do the binding or it would do nothing."""
    reason = binding.why_not(settings, inventory)
    if reason is None:
        return settings, ()
    return settings.but(binding="none"), (f"binding: asked {settings.binding}, applied none ({reason})",)


def _on_device(settings: Settings, inventory: Inventory) -> tuple[Settings, tuple[str, ...]]:
    """Return each knob's value, or what this machine's devices can do instead, and a line for each of these."""
    own = Settings(**{knob.name: knob.on_machine(getattr(settings, knob.name), inventory) for knob in KNOBS})
    return own, changes(settings, own, f"training on {inventory.device.type} here")
