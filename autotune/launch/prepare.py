"""From a profile to the command line and environment that start training: what ``autotune run`` starts."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autotune import project
from autotune.environment import DISABLE, LEVEL, PROFILE, SCRIPT_VARIABLE, disabled
from autotune.errors import NothingUsable, ProfileError, UsageError, did_you_mean
from autotune.knobs import binding
from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.knobs.constraints import with_processes
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.stated import own_threads
from autotune.launch import command as launcher
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.probes.software import mpiexec
from autotune.probes.system import System
from autotune.profiles import registry
from autotune.profiles.clamp import clamp, for_this_machine, one_process
from autotune.profiles.format import Profile
from autotune.profiles.match import NONE, Here, Match
from autotune.scripts.apply import Order, SharedBatch
from autotune.scripts.entry import torchrun
from autotune.trial.target import Script

AS_ONE = "it was tuned with what torchrun sets (RANK and others): it is started as torchrun starts one process"
OTHER_NUMBER = "your launch line starts {} process(es), and the profile is for {}. Tune that line, or give --nproc"
UNSEEN = "it names no autotune.load(), which shares its work out. If a module that it imports does, give --nproc"


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """The user's options for the start.

    Attributes:
        profile: the profile or its URL; ``AUTOTUNE_PROFILE`` or the best for this machine and script if None.
        level: one of `LEVELS`; ``AUTOTUNE_LEVEL`` or the recommended one if None.
        task: whose profile is taken; the script's own if None.
        processes: how many on each machine, instead of the profile's number; the global batch stays.
        required: raise if no profile can be applied.
        verbose: say at the end how fast the script was.
    """

    profile: Path | str | None = None
    level: str | None = None
    task: str | None = None
    processes: int | None = None
    required: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Launch:
    """Everything that starting needs, printable as a shell line."""

    command: list[str]
    environment: dict[str, str]
    added: dict[str, str]
    notes: tuple[str, ...]
    title: str = ""
    """Profile, level and knobs in force; empty if the script starts as it is."""
    binds: bool = False
    """True if this process binds itself before it becomes the training: one process needs no starter of its own."""

    def shell(self) -> str:
        """Return one shell line."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.added.items()]
        binder = [sys.executable, *launcher.BINDER] if self.binds else []
        return " ".join([*variables, shlex.join([*binder, *self.command])])

    def start(self) -> None:
        """Replace this process by the training (exec). Raise `UsageError` if the user's own launcher is not there."""
        if self.binds:
            os.environ.update(self.environment)
            binding.main(self.command)
        try:
            os.execvpe(self.command[0], self.command, self.environment)
        except (FileNotFoundError, PermissionError) as error:
            raise UsageError(f"{self.command[0]}: {error.strerror}. Is its environment active?") from None


def prepare(script: Script, options: StartOptions) -> Launch:
    """Return what ``autotune run`` starts: the script as it is, with the reason, if no profile can be applied.

    Raise `UsageError` if what the user names is not there or cannot be: a file, a name, a level, a number of processes;
    `NothingUsable` if no profile can be applied, and one is required.
    """
    _check(options)
    try:
        return _tuned(script, options)
    except UsageError:
        raise
    except Exception as error:  # whatever is wrong with a profile or a probe, the script trains
        reason = " ".join(str(error).split()) or type(error).__name__
    if options.processes is not None:
        reason += f"; --nproc {options.processes} needs a profile"
    if options.required:
        raise NothingUsable(reason)
    return _as_it_is(script, reason)


def _check(options: StartOptions) -> None:
    """Raise `UsageError` if the user names what cannot be."""
    if options.level is not None and options.level not in LEVELS:
        hint = did_you_mean(options.level, LEVELS)
        raise UsageError(f"--level {options.level}: levels are {', '.join(LEVELS)}{hint}")
    if options.profile is not None and options.task is not None:
        raise UsageError("--name chooses among profiles, and --profile names one: give one of the two")


def _tuned(script: Script, options: StartOptions) -> Launch:
    """Return the start with a profile, or the script as it is if its profile changes nothing."""
    reason = f"{DISABLE} is set" if disabled(os.environ) else launcher.slurm_tasks(os.environ) or script.hides_us
    if reason:
        raise NothingUsable(reason)
    inventory = probe(quick=True)
    found, said = _profile(script, options, inventory)
    profile = found.profile
    if found.verdict == NONE:
        raise NothingUsable(found.sentence)
    named = options.level or os.environ.get(LEVEL)
    if not options.level and named and named not in profile.levels:
        said, named = (*said, f"{LEVEL}={named}: the profile has {', '.join(profile.levels)}"), None
    level = profile.checked_level(named)
    if not named and (doubt := profile.unproven(level)):
        raise NothingUsable("; ".join((*said, doubt)))
    if not named and options.processes is None and script.machines == 1 and (why := profile.unfelt(level)):
        return _as_it_is(script, why, said)
    if script.machines > 1 and (reason := _why_one_machine(profile, level)):
        raise NothingUsable(reason)
    if BACKENDS[profile.levels[level].settings.backend or "gloo"].module is not None:
        inventory = probe()  # whether it works here
    settings, notes = _settings(script, profile, level, options, inventory)
    if script.line and options.processes is None and settings.processes != script.processes:
        raise NothingUsable(OTHER_NUMBER.format(script.processes, settings.processes))
    order, alone = _order(profile, level, settings), settings.processes == 1 and script.machines == 1
    as_one = torchrun.variables() if alone and profile.target.ranked and "RANK" not in os.environ else {}
    by = (AS_ONE,) if as_one else ()
    if alone and order is None and profile.target.script is not None:
        return _as_it_is(script, f"level {level} has your own settings", (*said, *notes, *by), own=as_one)
    if order is not None and options.verbose:
        items = settings.global_batch if profile.target.unit == "samples" else 1
        by_batch = profile.target.script == "batches"
        order = replace(order, expected=profile.levels[level].rate / items, by_batch=by_batch)
    own = as_one | dict(script.variables)
    if profile.target.script is None:
        own |= {PROFILE: str(registry.local(found).resolve()), LEVEL: level}
    launch = _launch(script, settings, order, own, inventory)
    knobs = (f"{name}={mine}" for name, (mine, _) in settings.difference(profile.baseline).items() if mine is not None)
    title = f"{found.source}, level {level}: {', '.join(knobs) or 'your own settings'}"
    return replace(launch, title=title, notes=(*said, *filter(None, [found.sentence]), *notes, *by, *launch.notes))


def _settings(
    script: Script, profile: Profile, level: str, options: StartOptions, inventory: Inventory
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings of ``level`` as this machine and the user's own variables allow, and notes."""
    if options.processes is None:
        wanted, notes = for_this_machine(profile, level, inventory)
    else:
        most = inventory.budget.threads
        if options.processes > most:
            limit = f"{most} process{'es' * (most > 1)} ({inventory.budget.limit})"
            raise UsageError(f"--nproc {options.processes}: this machine runs at most {limit}")
        wanted, notes = with_processes(profile.levels[level].settings, options.processes, inventory), ()
    settings, said = clamp(wanted, inventory)
    alone = _why_alone(profile, script, options.task) if settings.processes > 1 and options.processes is None else None
    if alone is not None:
        said = (*said, f"{script.name} is started as one process: {alone}")
        settings = one_process(settings, inventory)
    if reason := _why_apart(profile, settings):
        raise (UsageError if options.processes else NothingUsable)(reason)
    settings, own = own_threads(settings, os.environ)
    return settings, (*notes, *said, *own)


def _launch(
    script: Script, settings: Settings, order: Order | None, own: dict[str, str], inventory: Inventory
) -> Launch:
    """Return the command and environment that put ``settings`` in force, with the script's ``own`` variables."""
    base = launcher.without_mpi_job(settings, os.environ)
    added = launcher.environment(settings, inventory, base, machines=script.machines)
    plan = binding.plan(settings, inventory)
    variables = added.set | own
    if plan.affinities:
        variables[binding.VARIABLE] = plan.text
    if order is not None:
        variables[SCRIPT_VARIABLE] = order.as_text()
    alone = settings.processes == 1 and script.machines == 1
    binder = [sys.executable, *launcher.BINDER] if plan.affinities and not alone else []
    first, *rest = script.words
    start = launcher.command(
        settings,
        first,
        rest,
        sys.executable,
        binder=binder,
        machines=script.machines,
        options=script.options,
        mpiexec=mpiexec(System()) or "mpiexec",
        applies=order is not None,
        torchrun=launcher.OUR_TORCHRUN,
    )
    notes = [*added.kept, *(f"{knob}: {why}" for knob, why in added.not_applied.items())]
    if script.machines > 1:
        samples = -(-settings.global_batch // (settings.processes * script.machines))
        notes.append(
            f"{script.machines} machines x {settings.processes} processes share the global batch of"
            f" {settings.global_batch} ({samples} samples each); the profile was measured on one machine"
        )
    return Launch(start, base | variables, variables, tuple(notes), binds=alone and bool(plan.affinities))


def _as_it_is(script: Script, why: str, notes: tuple[str, ...] = (), own: Mapping[str, str] | None = None) -> Launch:
    """Return the script without a profile: by the user's own launch line, else with the variables ``own``."""
    said = (*notes, f"the script starts as it is: {why}")
    if script.line:
        return Launch(list(script.line), dict(os.environ), {}, said)
    start, added = [sys.executable, *script.words], {**script.variables, **(own or {})}
    return Launch(start, os.environ | added, added, said)


def _profile(script: Script, options: StartOptions, inventory: Inventory) -> tuple[Match, tuple[str, ...]]:
    """Return the profile to take: the one that the user names, else the best for this machine; and notes."""
    named = options.profile or (os.environ.get(PROFILE, "").strip() if options.task is None else None)
    if named:
        try:
            match = registry.of_file(named, Here.on(inventory))
        except ProfileError as error:
            raise (UsageError(f"--profile {error}") if options.profile else error) from None
        tuned = match.profile.target
        same = tuned.script is None or tuned.name in project.names_of(script.path)
        return match, () if same else (f"the profile is of {tuned.name}, not of {script.name}",)
    names = (options.task,) if options.task else project.names_of(script.path)
    found = registry.search(Here.on(inventory, *names), script=script.path)
    if found.match is not None:
        return found.match, found.notes
    words = shlex.join(script.words[: 2 if script.module else 1])
    own = f" --name {options.task} {words}" if options.task else f" {words}, or take another task's: --name NAME"
    advice = "" if found.best else own
    reason = "; ".join([f"{found.reason}{advice}", *found.notes])
    unknown = options.task is not None and found.best is None and not registry.is_kept(options.task, script.path)
    raise (UsageError if unknown else NothingUsable)(reason)


def _order(profile: Profile, level: str, settings: Settings) -> Order | None:
    """Return what is to be applied to an unmodified script; None if it applies settings itself, or has them already."""
    if profile.target.script is None or settings == profile.baseline:
        return None
    shared = None
    if settings.processes > 1 or settings.global_batch != profile.baseline.global_batch:
        shared = SharedBatch(profile.baseline.global_batch, settings.batch_size, profile.target.samples)
    return Order(settings, profile.baseline, profile.target.compared, level, profile.target.device, shared)


def _why_alone(profile: Profile, script: Script, task: str | None) -> str | None:
    """Return why ``script``, of the target ``task`` if one is named, must not be started as several processes, or None.

    Processes of a script that neither shares its work nor lets `autotune.load` do so would train side by side.
    """
    tuned = profile.target.name
    if "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        return "RANK and WORLD_SIZE are yours"
    if profile.target.script is not None:
        return None if tuned in (*project.names_of(script.path), task) else f"the profile is of {tuned}"
    text = script.path.read_text(errors="replace") if script.path.is_file() else ""
    return None if "autotune" in text else UNSEEN


def _why_one_machine(profile: Profile, level: str) -> str | None:
    """Return why the profile is not applied on several machines; None if it may be."""
    if profile.target.script is not None:
        return "an unmodified script is tuned for one machine; several take a task file or autotune.load()"
    row = BACKENDS[profile.levels[level].settings.backend or "gloo"]
    return f"the profile's backend {row.name} trains on one machine only" if row.launcher == MPIEXEC else None


def _why_apart(profile: Profile, settings: Settings) -> str | None:
    """Return why the processes of an unmodified script would not train together; None if a trial has shown it."""
    processes = settings.processes
    if profile.target.script is None or processes == 1:
        return None
    refused = (item for item in profile.evidence.not_offered if item.knob == "processes")
    own = processes == profile.baseline.processes
    reason = next((item.reason for item in refused if item.value in (2, processes) and not own), None)
    if settings.global_batch != profile.baseline.global_batch:
        reason = reason or f"they cannot share its batch of {profile.baseline.global_batch} equally"
    return reason and f"{profile.target.name} cannot train as {processes} processes: {reason}"
