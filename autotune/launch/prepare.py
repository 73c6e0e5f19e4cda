"""From a profile to the command line and environment that start training: what ``autotune run`` starts."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from autotune.environment import DISABLE, LEVEL, PROFILE, SCRIPT_VARIABLE, overrides
from autotune.errors import UsageError
from autotune.knobs import binding
from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.knobs.constraints import with_processes
from autotune.knobs.settings import Settings
from autotune.launch.command import (
    OUR_TORCHRUN,
    Cluster,
    Environment,
    command,
    environment,
    own_threads,
    starter,
    system_tools,
    without_mpi_job,
)
from autotune.near import did_you_mean
from autotune.probes import network
from autotune.probes.facts import Inventory, Route
from autotune.probes.inventory import probe
from autotune.probes.software import mpiexec
from autotune.probes.system import System
from autotune.profiles import registry
from autotune.profiles.clamp import clamp, for_this_machine, one_process
from autotune.profiles.file import read
from autotune.profiles.format import Profile
from autotune.profiles.match import NONE, Here, compare
from autotune.profiles.places import places
from autotune.runtime.entry import torchrun
from autotune.scripts.apply import Order, SharedBatch
from autotune.trial.target import Script

EMPTY: Mapping[str, str] = MappingProxyType({})
AS_ONE = "the script needs what torchrun sets (RANK and others): it is started as torchrun starts one process"
NOT_FELT = (
    "the script starts as it is: the run that was tuned is too short to gain from its profile. For a longer run, give"
    " --level {}"
)
OTHER_NUMBER = (
    "your launch line starts {} process(es), and the profile was tuned for {}: it starts as it is. Tune it with that"
    " line, or give --nproc"
)
DISABLED = f"{DISABLE} is set: the script starts as it is, without a profile"


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The user's wishes for the start.

    Attributes:
        profile: the profile; ``AUTOTUNE_PROFILE`` or the best for this machine and script if None.
        level: ``safe``, ``amp`` or ``max``; ``AUTOTUNE_LEVEL`` or the recommended one if None.
        task: whose profile is taken; the script's own if None.
        processes: how many on each machine, instead of the profile's number; the global batch stays.
        cluster: the machines that train together; this one alone if None.
    """

    profile: Path | None = None
    level: str | None = None
    task: str | None = None
    processes: int | None = None
    cluster: Cluster | None = None


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
        """Return one shell line."""
        return " ".join(
            [*(f"{name}={shlex.quote(value)}" for name, value in self.added.items()), shlex.join(self.portable)]
        )

    def start(self) -> None:
        """Become the training."""
        os.execvpe(self.command[0], self.command, self.environment)


def prepare(script: Script, wishes: Wishes) -> Launch:
    """Return what ``autotune run`` starts.

    Raises:
        UsageError: no profile for this machine, no such level, too many processes, or no route to the other machines.
    """
    outside = overrides(os.environ)
    words = (*(["-m", script.module] if script.module else [script.written]), *script.arguments)
    if wishes.processes is not None and wishes.processes < 1:
        raise UsageError(f"--nproc {wishes.processes}: must be at least 1")
    if outside.disabled:
        return _as_it_is(words, DISABLED, line=script.line)
    if script.hides_us:
        return _as_it_is(words, f"the script starts as it is: {script.hides_us}", line=script.line)
    inventory = probe()
    path, notes = _profile(script, wishes, inventory)
    profile = read(path)
    comparison = compare(profile, Here.on(inventory))
    notes += tuple(filter(None, [comparison.sentence]))
    if comparison.verdict == NONE:
        return _as_it_is(words, f"the script starts as it is: {comparison.sentence}", line=script.line)
    option, level = ("--level", wishes.level) if wishes.level else (LEVEL, outside.level)
    level = profile.checked_level(level, option)
    if (wishes.level, wishes.processes, wishes.cluster) == (None,) * 3 and not profile.is_felt(level):
        return _as_it_is(words, NOT_FELT.format(level), line=script.line)
    settings, said = _settings(script, profile, level, wishes, inventory)
    if script.line and wishes.processes is None and settings.processes != script.processes:
        other = OTHER_NUMBER.format(script.processes, settings.processes)
        return _as_it_is(words, other, line=script.line)
    order = _order(profile, level, settings)
    alone = settings.processes == 1 and wishes.cluster is None
    as_one = _as_torchrun(profile) if alone else {}
    by = (AS_ONE,) if as_one else ()
    if order is None and profile.target.script is not None and alone:
        own_settings = f"the script starts as it is: level {level} has your own settings"
        return _as_it_is(words, "; ".join((*(said or (own_settings,)), *by)), as_one, script.line)
    own = (
        as_one
        | dict(script.variables)
        | ({PROFILE: str(path.resolve()), LEVEL: level} if profile.target.script is None else {})
    )
    return _launch(words, settings, order, own, wishes, inventory, notes=(*notes, *said, *by))


def _settings(
    script: Script, profile: Profile, level: str, wishes: Wishes, inventory: Inventory
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings of ``level`` as this machine and the user's own words allow them, and what to say.

    Raises:
        UsageError: the script, or this machine, cannot train as so many processes.
    """
    if wishes.processes is None:
        wanted, notes = for_this_machine(profile, level, inventory)
    else:
        most = inventory.budget.threads
        if wishes.processes > most:
            limit = f"{most} process{'es' * (most > 1)} ({inventory.budget.limit})"
            raise UsageError(f"--nproc {wishes.processes}: this machine runs at most {limit}")
        wanted, notes = with_processes(profile.levels[level].settings, wishes.processes, inventory), ()
    settings, said = clamp(wanted, inventory)
    alone = _why_alone(profile, script) if settings.processes > 1 and wishes.processes is None else None
    if alone is not None:
        settings, said = one_process(settings, inventory), (*said, alone)
    check_shares(profile, settings, wishes.cluster.nodes if wishes.cluster else 1)
    settings, own = own_threads(settings, os.environ)
    return settings, (*notes, *said, *own)


def _launch(
    words: Sequence[str],
    settings: Settings,
    order: Order | None,
    own: dict[str, str],
    wishes: Wishes,
    inventory: Inventory,
    notes: tuple[str, ...],
) -> Launch:
    """Return the command and environment that put ``settings`` in force.

    Args:
        words: the script and its arguments.
        settings: to start it with.
        order: what is applied to the script from outside.
        own: variables that the script reads, or this package's own runtime in it.
        wishes: the user's.
        inventory: this machine.
        notes: what to say already.
    """
    base, cluster = without_mpi_job(settings, os.environ), wishes.cluster
    route = _route(settings, cluster)
    added = environment(settings, inventory, base, interface=route.interface if route else None)
    plan, unbound = _plan(settings, inventory, added)
    variables = added.set | own
    if plan.affinities:
        variables[binding.VARIABLE] = plan.text
    if order is not None:
        variables[SCRIPT_VARIABLE] = order.as_text()
    starting = partial(
        command,
        settings,
        words[0],
        words[1:],
        sys.executable,
        cluster=cluster,
        route=route,
        mpiexec=mpiexec(System()) or "mpiexec",
        applies=order is not None,
    )
    start = starting(binder=starter(plan, sys.executable), torchrun=OUR_TORCHRUN)
    portable = starting(binder=system_tools(plan))
    kept = (*(each.note for each in added.kept), *(f"{knob}: {why}" for knob, why in added.not_applied))
    said = (*kept, *_shared(settings, cluster), *unbound)
    return Launch(start, portable, base | variables, variables, (*notes, *said))


def _as_torchrun(profile: Profile) -> dict[str, str]:
    """Return what torchrun sets for one process, if the script needs it and has not got it."""
    return torchrun.variables() if profile.target.ranked and "RANK" not in os.environ else {}


def _as_it_is(
    words: Sequence[str],
    note: str,
    own: Mapping[str, str] = EMPTY,
    line: Sequence[str] = (),
) -> Launch:
    """Return the script without a profile: by the user's own launch ``line``, else with the variables ``own``."""
    if line:
        return Launch(list(line), list(line), dict(os.environ), {}, (note,))
    start = [sys.executable, *words]
    return Launch(start, start, os.environ | own, dict(own), (note,))


def _profile(script: Script, wishes: Wishes, inventory: Inventory) -> tuple[Path, tuple[str, ...]]:
    """Return the profile to take: the one that the user names, else the best for this machine; and what to say."""
    outside = overrides(os.environ).profile
    if wishes.profile is not None:
        return wishes.profile, ()
    if outside is not None and wishes.task is None:
        return Path(outside), ()
    name = wishes.task or script.name
    here = Here.on(inventory, name)
    roots = places(os.environ, script.path)
    found = registry.search(here, roots)
    if found.match is not None:
        return found.match.local(), found.notes
    if found.similar is not None:
        sentence = found.similar.comparison.sentence
        raise UsageError(f"{found.similar.source} is not applied by itself (--profile does it): {sentence}")
    known = [each for each in registry.targets(here, roots) if each != name]
    others = f"; --target NAME takes another task's: {', '.join(known)}" if known else ""
    start = f"-m {script.module}" if script.module else shlex.quote(script.written)
    looked = "".join(f"\n{note}" for note in found.notes)
    raise UsageError(
        f"no profile fits this machine and {name}{did_you_mean(name, known)}{others};"
        f" make one: autotune tune {start}{looked}"
    )


def _route(settings: Settings, cluster: Cluster | None) -> Route | None:
    """Return the route to where the machines meet; None for one machine.

    Raises:
        UsageError: the backend trains on one machine only, or the machines cannot meet there.
    """
    if cluster is None:
        return None
    if settings.backend and BACKENDS[settings.backend].launcher == MPIEXEC:
        raise UsageError(
            f"--nnodes {cluster.nodes}: the profile's backend {settings.backend} trains on one machine only"
        )
    route = network.route(System(), cluster.host)
    if route is None:
        raise UsageError(
            f"{cluster.host}: this machine has no route there. Give a name or an address that all can reach"
        )
    return route


def _shared(settings: Settings, cluster: Cluster | None) -> tuple[str, ...]:
    """Return how several machines share the global batch."""
    if cluster is None:
        return ()
    total = settings.processes * cluster.nodes
    return (
        f"{cluster.nodes} machines x {settings.processes} processes share the global batch of {settings.global_batch}"
        f" ({-(-settings.global_batch // total)} samples each); the profile was measured on one machine",
    )


def _plan(settings: Settings, inventory: Inventory, added: Environment) -> tuple[binding.AffinityPlan, tuple[str, ...]]:
    """Return CPUs for the profile's threads; none, with the reason, if the user's own number of threads is in force."""
    own = [kept.name for kept in added.kept if kept.name.endswith("_NUM_THREADS")]
    if own and settings.binding != "none":
        return binding.AffinityPlan(), (f"binding: asked {settings.binding}, applied none ({own[0]} is yours)",)
    return binding.plan(settings, inventory), ()


def _order(profile: Profile, level: str, settings: Settings) -> Order | None:
    """Return what is to be applied to an unmodified script; None if it applies settings itself, or has them already."""
    if profile.target.script is None or settings == profile.baseline:
        return None
    shared = None
    if settings.processes > 1:
        shared = SharedBatch(profile.baseline.global_batch, settings.batch_size, profile.target.samples or 0)
    return Order(settings, profile.baseline, profile.target.compared, level, profile.target.device, shared)


def _why_alone(profile: Profile, script: Script) -> str | None:
    """Return why ``script`` must not be started as several processes; None if it may.

    Processes of a script that neither shares its work nor lets `autotune.load` do so would train side by side.
    """
    name, tuned = script.name, profile.target.name
    if "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        return f"{name} is started as one process: RANK and WORLD_SIZE are yours"
    if profile.target.script is not None:
        return None if name == tuned else f"{name} is started as one process: the profile is of {tuned}"
    text = script.path.read_text(errors="replace") if script.path.is_file() else ""
    if "autotune" in text:
        return None
    return f"{name} is started as one process: it does not use autotune.load(), which shares its work out"


def check_shares(profile: Profile, settings: Settings, nodes: int) -> None:
    """Check that several processes of an unmodified script train together: a trial must have shown it.

    Args:
        profile: of the script.
        settings: to start it with.
        nodes: how many machines train together.

    Raises:
        UsageError: nothing has shown it, or the processes cannot share the script's batch equally.
    """
    processes = settings.processes * nodes
    if profile.target.script is None or processes == 1:
        return
    refused = (item for item in profile.evidence.not_offered if item.knob == "processes")
    own = processes == profile.baseline.processes
    reason = next((item.reason for item in refused if item.value in (2, processes) and not own), None)
    if nodes > 1:
        reason = "an unmodified script is tuned for one machine; several take a task file or autotune.load()"
    elif settings.global_batch != profile.baseline.global_batch:
        reason = reason or f"they cannot share its batch of {profile.baseline.global_batch} equally"
    if reason is not None:
        raise UsageError(f"{profile.target.name} cannot train as {processes} processes: {reason}")
