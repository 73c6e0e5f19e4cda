"""``autotune run``: from a profile to the command line and environment that start training."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from autotune.environment import DISABLE, LEVEL, PROFILE, TIMEOUT_VARIABLE, overrides
from autotune.errors import UsageError
from autotune.knobs import affinity as binding
from autotune.knobs.backend import BACKENDS, MPIEXEC, TORCHRUN
from autotune.knobs.clamp import clamp, for_this_machine, one_process
from autotune.knobs.constraints import with_processes
from autotune.knobs.settings import Settings
from autotune.launch import scripts
from autotune.launch.cluster import Cluster, idle_machines, no_route
from autotune.launch.command import ENTRY, OUR_TORCHRUN, command, starter, system_tools
from autotune.launch.environment import Environment, environment, own_threads, without_mpi_job
from autotune.near import did_you_mean
from autotune.probes import network
from autotune.probes.facts import Inventory, Route
from autotune.probes.inventory import probe
from autotune.probes.software import mpiexec
from autotune.probes.system import System
from autotune.profiles import registry
from autotune.profiles.file import read
from autotune.profiles.format import Profile
from autotune.profiles.match import NONE, Here, compare
from autotune.profiles.places import places
from autotune.trial.target import Script

DISABLED = f"{DISABLE} is set: the script starts as it is, without a profile"


@dataclass(frozen=True)
class Launch:
    """Everything that starting needs, printable as a shell line that works without this tool."""

    command: list[str]
    portable: list[str]
    """The command with the system's own tools in place of this package's."""
    environment: dict[str, str]
    added: dict[str, str]
    notes: tuple[str, ...]

    def shell(self) -> str:
        """One shell line."""
        return " ".join(
            [*(f"{name}={shlex.quote(value)}" for name, value in self.added.items()), shlex.join(self.portable)]
        )


def run(launch: Launch, dry_run: bool) -> None:
    """Become the training that ``launch`` describes, or print it; notes go to stderr."""
    for note in launch.notes:
        print(note, file=sys.stderr)
    if dry_run:
        print(launch.shell())
    else:
        os.execvpe(launch.command[0], launch.command, launch.environment)


def prepare(
    target: Script,
    profile: Path | None,
    level: str | None,
    name: str | None = None,
    processes: int | None = None,
    cluster: Cluster | None = None,
    timeout: float | None = None,
    why_not: str | None = None,
) -> Launch:
    """What `autotune run` starts.

    Args:
        target: the training script.
        profile: the profile; ``AUTOTUNE_PROFILE`` or the best for this machine and script if None.
        level: ``safe``, ``amp`` or ``max``; ``AUTOTUNE_LEVEL`` or the recommended one if None.
        name: of the task whose profile is taken; the script's own if None.
        processes: how many on each machine, instead of the profile's number; the global batch stays.
        cluster: the machines that train together; this one alone if None.
        timeout: the training ends if a process takes no optimizer step for this many seconds.
        why_not: the script starts without a profile, and this is why; None where it takes one.

    Raises:
        UsageError: no such script, no profile for this machine, no such level, no processes, or no route to the others.
    """
    outside, words = overrides(os.environ), _words(target, processes)
    if why_not or outside.disabled:
        return _as_it_is(words, why_not or DISABLED)
    if target.hides_us:
        return _as_it_is(words, f"the script starts as it is: {target.hides_us}")
    inventory = probe()
    profile = profile or _named(name) or _match(target, name, inventory)
    found = read(profile)
    comparison = compare(found, Here.on(inventory))
    if comparison.verdict == NONE:
        return _as_it_is(words, f"the script starts as it is: {comparison.sentence}")
    option, level = ("--level", level) if level else (LEVEL, outside.level)
    level = found.checked_level(level, option)
    wanted, grown = _wanted(found, level, processes, inventory)
    settings, notes = clamp(wanted, inventory)
    alone = scripts.why_alone(found, target) if settings.processes > 1 and processes is None else None
    if alone is not None:
        settings, notes = one_process(settings, inventory), (*notes, alone)
    scripts.check_shares(found, settings, cluster.nodes if cluster else 1)
    settings, own = own_threads(settings, os.environ)
    order, base = scripts.order(found, level, settings), without_mpi_job(settings, os.environ)
    if order is None and found.target.script is not None and settings.processes == 1 and cluster is None:
        return _as_it_is(words, f"the script starts as it is: level {level} has your own settings", timeout)
    route = _route(settings, cluster)
    added = environment(settings, inventory, base, interface=route.interface if route else None)
    plan, unbound = _plan(settings, inventory, added)
    variables = added.set | _own_variables(found, profile, level, plan, timeout) | scripts.variables(order)
    starting = partial(command, settings, words[0], words[1:], sys.executable, cluster=cluster, route=route)
    mpi, watched = mpiexec(System()) or "mpiexec", timeout is not None or order is not None
    start = starting(mpiexec=mpi, watched=watched, binder=starter(plan, sys.executable), torchrun=OUR_TORCHRUN)
    portable = starting(mpiexec=mpi, watched=watched, binder=system_tools(plan))
    said = (*own, *_environment_notes(added), *_machines_note(settings, cluster), *unbound)
    notes = (*filter(None, [comparison.sentence]), *grown, *notes, *said)
    return Launch(start, portable, base | variables, variables, notes)


def _wanted(
    profile: Profile, level: str, processes: int | None, inventory: Inventory
) -> tuple[Settings, tuple[str, ...]]:
    """Settings of ``level`` before they are clamped, with the ``processes`` that were asked for, and what to say."""
    if processes is not None:
        return with_processes(profile.levels[level].settings, processes, inventory), ()
    return for_this_machine(profile, level, inventory)


def _words(target: Script, processes: int | None) -> tuple[str, ...]:
    """The script and its arguments, once ``processes`` is seen to be a number of them."""
    if processes is not None and processes < 1:
        raise UsageError(f"--nproc {processes}: must be at least 1")
    return (*(["-m", target.module] if target.module else [target.written]), *target.arguments)


def _named(name: str | None) -> Path | None:
    """The profile that the environment names, unless the user names a task."""
    own = overrides(os.environ).profile
    return Path(own) if own and name is None else None


def _as_it_is(words: Sequence[str], note: str, timeout: float | None = None) -> Launch:
    """Return the script without a profile, in the user's own environment."""
    variables = {} if timeout is None else {TIMEOUT_VARIABLE: f"{timeout:g}"}
    watched = ["-m", ENTRY, "gloo"] if variables else []
    line = [sys.executable, *watched, *words]
    return Launch(line, line, os.environ | variables, variables, (note,))


def _own_variables(
    found: Profile, profile: Path, level: str, plan: binding.AffinityPlan, timeout: float | None
) -> dict[str, str]:
    """Return what this package's own runtime reads in the training processes."""
    variables: dict[str, str] = {}
    if found.target.script is None:  # `autotune.load` in the script takes it
        variables = {PROFILE: str(profile.resolve()), LEVEL: level}
    if plan.affinities:
        variables[binding.VARIABLE] = plan.text
    if timeout is not None:
        variables[TIMEOUT_VARIABLE] = f"{timeout:g}"
    return variables


def _environment_notes(added: Environment) -> tuple[str, ...]:
    return (*(kept.note for kept in added.kept), *(f"{knob}: {why}" for knob, why in added.not_applied))


def _match(target: Script, name: str | None, inventory: Inventory) -> Path:
    """Return the best profile for this machine and the task ``name``, by default the script's own."""
    name = name or target.name
    here = Here.on(inventory, name)
    roots = places(os.environ, target.path)
    found = registry.search(here, roots)
    for note in found.notes:
        print(note, file=sys.stderr)
    if found.match is None:
        if found.similar is not None:
            sentence = found.similar.comparison.sentence
            raise UsageError(f"{found.similar.path} is not applied by itself (--profile does it): {sentence}")
        known = [each for each in registry.targets(here, roots) if each != name]
        others = f"; --target NAME takes another task's: {', '.join(known)}" if known else ""
        start = f"-m {target.module}" if target.module else target.written
        raise UsageError(
            f"no profile fits this machine and {name}{did_you_mean(name, known)}{others};"
            f" make one: autotune tune {start}"
        )
    return found.match.path


def _route(settings: Settings, cluster: Cluster | None) -> Route | None:
    """To where the machines meet, or to another one of mpiexec's; None for one machine, or if mpiexec must find it.

    Raises:
        UsageError: the backend must be started differently, or the machines cannot meet there.
    """
    if cluster is None:
        return None
    launcher = BACKENDS[settings.backend].launcher if settings.backend else TORCHRUN
    if (launcher == MPIEXEC) != bool(cluster.hosts):
        options = (
            "--hosts A,B (once, on one of them)" if launcher == MPIEXEC else "--nnodes and --rdzv-endpoint (on each)"
        )
        raise UsageError(f"the profile's backend is {settings.backend}: start its machines with {options}")
    if launcher == MPIEXEC:
        routes = (network.route(System(), host) for host in cluster.hosts)
        return next((route for route in routes if route is not None and not route.here), None)
    route = network.route(System(), cluster.host)
    if route is None:
        raise no_route(cluster.host)
    return route


def _machines_note(settings: Settings, cluster: Cluster | None) -> tuple[str, ...]:
    """How the machines share the global batch, or that the job has machines that stay idle."""
    if cluster is None:
        idle = idle_machines(os.environ)
        return (idle,) if idle else ()
    total = settings.processes * cluster.nodes
    return (
        f"{cluster.nodes} machines x {settings.processes} processes share the global batch of {settings.global_batch}"
        f" ({-(-settings.global_batch // total)} samples each); the profile was measured on one machine",
    )


def _plan(settings: Settings, inventory: Inventory, added: Environment) -> tuple[binding.AffinityPlan, tuple[str, ...]]:
    """CPUs for the profile's threads; none, with the reason, if the user's own number of threads is in force."""
    own = [kept.name for kept in added.kept if kept.name.endswith("_NUM_THREADS")]
    if own and settings.binding != "none":
        return binding.AffinityPlan(), (f"binding: asked {settings.binding}, applied none ({own[0]} is yours)",)
    return binding.plan(settings, inventory), ()
