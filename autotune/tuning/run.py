"""`tune`: the composition root of a tuning run. The command line and Python users both come through here."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.cluster.listener import Door, for_several, hello
from autotune.core.baseline import baseline_settings
from autotune.core.budget import usual_budget
from autotune.core.errors import Interrupted, LaunchError, UsageError
from autotune.core.knobs import LEVELS, Context
from autotune.core.machine import machine_type
from autotune.core.measurement import Places
from autotune.core.outcome import Outcome
from autotune.core.profile import Profile
from autotune.core.settings import KNOB_NAMES, Settings
from autotune.core.space import Space, build
from autotune.host.runner import open_runner, refuse_ranks
from autotune.search.protocol import Observation, Search
from autotune.store import profiles, registry
from autotune.trial.bench import TrialBench
from autotune.trial.contract import recognise
from autotune.trial.fleet import Fleet
from autotune.trial.runner import Runner
from autotune.tuning.result import cores_apart, gflops, profile_of, told
from autotune.tuning.search import Tuner
from autotune.tuning.state import Observer, settle_baseline
from probes.bench.run import measure
from probes.facts import Inventory
from probes.inventory import probe
from probes.system import System

if TYPE_CHECKING:
    from autotune.search.study import Study

LEAST_BUDGET = 5.0
FOLLOWERS = {
    "num_workers": ("prefetch_factor",),
    "processes": ("threads", "backend", "batch_size"),
}
"""Knobs that cannot stay where they are when another moves: ``--only`` frees them too."""
CEILING_BUDGET = 60.0
"""Shorter runs do without the two seconds (once per boot) that measuring matrix products takes."""
LEAST_PATIENCE, PATIENCE_SHARE, MAX_PATIENCE = 10.0, 0.4, 60.0
"""How long the baseline may show no sign of life: a share of the budget within these seconds."""
GATHER_SECONDS = 300.0
"""How long the machines of a run wait for each other."""
FINISH_SECONDS = 1.0
"""Kept back from the budget for ending the last trial and writing the profile."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user asked for."""

    profile: Path | None = None
    """Where to write; by default ``profiles/<machine key>/<target>.yaml``."""
    level: str | None = None
    """The level to recommend."""
    budget: float | None = None
    """Seconds, from the start of the call to the written profile; by default `autotune.core.budget.usual_budget`."""
    seed: int = 0
    resume: bool = False
    train_seconds: float | None = None
    fix: Mapping[str, Any] | None = None
    """Knobs pinned to a value."""
    only: Sequence[str] = ()
    """Knobs that may move; all where empty."""

    def seconds(self, outcome: Outcome | None = None) -> float:
        """The budget; where none was given, what is usual for a baseline's trial that ended in ``outcome``."""
        return self.budget or usual_budget(self.train_seconds, outcome)


@dataclass(frozen=True)
class Answer:
    """A finished tuning run."""

    profile: Profile
    path: Path
    inventory: Inventory


def tune(
    task: str | Path, *, budget: float | None = None, profile: str | Path | None = None, **options: Any
) -> Profile:
    """Tune the task file ``task`` and write its profile.

    Args:
        task: path of the task file.
        budget: seconds for everything; by default 60, 90 where a step takes longer than 20 ms, 150 where it takes
            longer than half a second, and more where ``train_seconds`` says that much training is ahead.
        profile: where to write; by default ``profiles/<machine key>/<target>.yaml``.
        options: the other fields of `Options`.

    Raises:
        AutotuneError: with the reason and what to do.
    """
    where = Path(profile) if profile is not None else None
    return run(Path(task), Options(budget=budget, profile=where, **options)).profile


def run(
    task: Path,
    options: Options,
    observe: Observer = lambda **_: None,
    started: float | None = None,
    door: Door | None = None,
) -> Answer:
    """Tune ``task`` as `Options` say, telling ``observe`` about progress.

    Args:
        task: the task file.
        options: what the user asked for.
        observe: told about progress.
        started: on the monotonic clock; the budget counts from here, or from when all machines have met.
        door: where the other machines of the run come to; this one alone where None.

    Raises:
        AutotuneError: with the reason and what to do.
        Interrupted: on SIGINT or SIGTERM, after the best so far is written.
    """
    started = time.monotonic() if started is None else started
    refuse_ranks()
    _check(options)
    file = recognise(task)
    inventory = probe()
    nnodes = door.nnodes if door else 1
    path = options.profile or registry.default_path(machine_type(inventory).key, file.name, nnodes=nnodes)
    _make_folder(path)
    patience = options.seconds()
    with contextlib.ExitStack() as stack:
        fleet = Fleet()
        notes: tuple[str, ...] = ()
        if door is not None:
            inventory = for_several(inventory)
            own = hello(file.path, inventory)
            fleet, notes = stack.enter_context(door.gather(own, options.seed, GATHER_SECONDS, observe))
            started = time.monotonic()
        runner = stack.enter_context(open_runner(file.path, inventory, options.seed, patience, observe, fleet))
        profile = _Session(runner, inventory, options, observe, started, notes).tune(path)
    return Answer(profile, path, inventory)


class _Session:
    """One tuning run between its open runner and its profile."""

    def __init__(
        self,
        runner: Runner,
        inventory: Inventory,
        options: Options,
        observe: Observer,
        started: float,
        notes: Sequence[str] = (),
    ) -> None:
        self.runner, self.inventory, self.options, self.observe = runner, inventory, options, observe
        self.budget = options.seconds()
        self.started, self.deadline = started, started + self.budget - FINISH_SECONDS
        self.warnings: list[str] = list(notes)
        self.gflops: dict[str, float] = {}
        self.nnodes = runner.fleet.nnodes

    def tune(self, path: Path) -> Profile:
        """Run everything and write the profile to ``path``; the study's journal lies beside it."""
        if self.budget >= CEILING_BUDGET:
            self.observe(stage="measuring matrix products")
            self.gflops = gflops(measure(System(), ["gemm"])["gemm"])
        self.observe(stage="loading the task")
        self.runner.deadline = self.deadline
        facts = self.runner.describe()
        if self.nnodes > 1 and facts.iterable:
            raise UsageError(f"{self.runner.task}: cannot be trained on several machines: {facts.processes_refused}")
        wanted = baseline_settings(facts, self.inventory)
        self.observe(stage="baseline", baseline=wanted, unit=facts.unit, trying=wanted)
        study = self._study(path, wanted)
        patience = min(MAX_PATIENCE, max(LEAST_PATIENCE, PATIENCE_SHARE * self.budget))
        bench = TrialBench(self.runner, wanted, self.options.seed, patience)
        history = study.observations()
        baseline = settle_baseline(bench, wanted, history, study.record, self.deadline, self.warnings)
        self._settle_budget(history)
        context = Context(self.inventory, facts, baseline, self.options.train_seconds, self.gflops, self.budget)
        spaces = self._spaces(context)
        tuner = Tuner(bench, spaces, self._search(study), self._finalists(), time.monotonic, self.deadline, history)
        self.observe(baseline=baseline)
        return self._finish(tuner, context, spaces, bench, path)

    def _settle_budget(self, history: Sequence[Observation]) -> None:
        """Where none was given: what the baseline's step calls for."""
        settled = self.options.seconds(history[-1].outcome)
        if settled != self.budget:
            self.deadline += settled - self.budget
            self.runner.deadline, self.budget = self.deadline, settled
            self.observe(budget=settled)

    def _finish(
        self, tuner: Tuner, context: Context, spaces: Mapping[str, Space], bench: TrialBench, path: Path
    ) -> Profile:
        interrupted: Interrupted | LaunchError | None = None
        try:
            results = tuner.run(self.observe).results(tuple(spaces))
        except (Interrupted, LaunchError) as ended:
            interrupted, results = ended, tuner.tuning.partial_results(tuple(spaces))
        if bench.fresh:
            self.warnings.append(f"trials ran as fresh processes, slower to start: {bench.fresh}")
        self.warnings += cores_apart(Places(tuple(bench.crossings)), self._nearest(bench))
        profile = profile_of(
            tuner.tuning,
            results,
            context,
            spaces[LEVELS[-1]].left_out,
            recommended=self.options.level,
            seconds=time.monotonic() - self.started,
            warnings=self.warnings,
            partial=interrupted is not None,
            nnodes=self.nnodes,
        )
        saved = profiles.write(path, profile)  # before the trials' processes are ended, which takes a moment
        if interrupted is not None:
            raise told(interrupted, saved) from interrupted
        return profile

    def _nearest(self, bench: TrialBench) -> dict[int, float]:
        """How near the cores have been since the machine was started, by number of threads."""
        system, own = System(), Places((*bench.searched, *bench.crossings)).nearest
        boot = system.read("/proc/sys/kernel/random/boot_id")
        known = system.lowest("crossing", boot, {str(threads): seconds for threads, seconds in own.items()})
        return {threads: float(known[str(threads)]) for threads in own}

    def _study(self, path: Path, baseline: Settings) -> Study:
        """The Optuna journal beside the profile. Another task text, machine or baseline is another study in it."""
        from autotune.search.study import open_study

        journal = path.with_suffix(".journal")
        if not self.options.resume:
            journal.unlink(missing_ok=True)
        identity = [self.runner.task.read_text(), machine_type(self.inventory).key, str(baseline.as_dict())]
        identity += [f"{self.nnodes} machines"] if self.nnodes > 1 else []
        digest = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:12]
        try:
            return open_study(journal, f"{path.stem}-{digest}")
        except Exception as error:
            raise UsageError(
                f"{journal}: the journal cannot be read ({type(error).__name__}: {error}). Run without --resume, which"
                " starts a new one."
            ) from error

    def _search(self, study: Study) -> Callable[[Space, Settings, Sequence[Observation], bool], Search]:
        from autotune.search.staged import StagedSearch

        seed = self.options.seed

        def search(space: Space, start: Settings, history: Sequence[Observation], thorough: bool) -> Search:
            return StagedSearch(space, study, start=start, history=history, seed=seed, thorough=thorough)

        return search

    @staticmethod
    def _finalists() -> Callable[[Sequence[Observation], Space, int], Sequence[Settings]]:
        from autotune.search.staged import finalists

        return finalists

    def _spaces(self, context: Context) -> dict[str, Space]:
        """The space of every level, with the user's pins."""
        fixed = dict(self.options.fix or {})
        if self.options.only:
            kept = context.baseline.as_dict()
            free = {follower for name in self.options.only for follower in (name, *FOLLOWERS.get(name, ()))}
            fixed |= {name: kept[name] for name in KNOB_NAMES if name not in free and name not in fixed}
        return {level: build(context, level, fixed) for level in LEVELS}


def _make_folder(path: Path) -> None:
    """Find out now, not after the run, that the profile cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"{path.parent}: profiles cannot be written there ({error.strerror}). Choose another place:"
            " --profile OUT.yaml"
        ) from error


def _check(options: Options) -> None:
    """Refuse what cannot work, before anything is started."""
    if options.budget is not None and options.budget < LEAST_BUDGET:
        raise UsageError(f"--budget {options.budget:g}s is too short: give at least {LEAST_BUDGET:g}s")
    if options.level is not None and options.level not in LEVELS:
        raise UsageError(f"--level {options.level}: levels are {', '.join(LEVELS)}")
    unknown = [name for name in options.only if name not in KNOB_NAMES]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: no such knob; knobs are: {', '.join(KNOB_NAMES)}")
