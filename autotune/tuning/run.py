"""A tuning run from its request to the written profile, phase by phase."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import durations, project
from autotune.errors import Interrupted, LaunchError, NothingUsable, UserCodeError
from autotune.knobs.knob import Context
from autotune.knobs.level import HIGHEST, LOWEST
from autotune.knobs.settings import BY_NAME
from autotune.knobs.space import Space
from autotune.knobs.stated import baseline_settings, check_fixed_for
from autotune.knobs.task_facts import TaskFacts
from autotune.probes.cpu_time import QUIET, Load, Neighbours
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles import file, places
from autotune.profiles.format import Profile, machine_type
from autotune.search.history import first_measured
from autotune.stats.decide import undisturbed
from autotune.stats.whole_run import WholeRun
from autotune.trial.parent.judge import check_memory
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_bench import PATIENCE, TrialBench
from autotune.trial.target import Target, recognise_target
from autotune.tuning import notes
from autotune.tuning.advice import advice, try_fixed
from autotune.tuning.baseline import compile_once, of_own_settings
from autotune.tuning.comparing import Comparison, compare_first_steps
from autotune.tuning.events import Observer, ignore
from autotune.tuning.options import Options
from autotune.tuning.proof import prove, seconds_to_decide
from autotune.tuning.race import best_of_levels, race, ranked_candidates
from autotune.tuning.result import evidence_of, memory_of, partial_answers, profile_of, proven_answers
from autotune.tuning.runner import check_not_a_rank, open_runner, same_cpus
from autotune.tuning.search import search
from autotune.tuning.state import RunState, Schedule

if TYPE_CHECKING:
    from autotune.search.study import Study

SCRIPT_PATIENCE = 540.0
"""Without ``--budget``, a script may take so much longer than a task file until it trains."""
LIVE_SECONDS, STARTS, MOST_STARTS_SECONDS = 45.0, 5, 180.0
"""Without ``--budget``, a run of a script that cannot be forked where it trains takes so much longer, for a trial takes
2 to 3 s there, and longer by so many of its starts: the search has one, and the proof a few."""
MOST_SECONDS_MORE = 30.0
"""A run without ``--budget`` takes up to so many more if they decide a level that is open."""
SCREENING_START = 2.0
"""Trials that take longer to start, in seconds, are not spent on screening: only winners are compared."""
FOLLOWED_BY = "autotune.inspect.epoch_end:follow"
FOLLOWED_SECONDS, FOLLOWED_SHARE = 8.0, 0.1
"""A script is followed for so long at most, and for this share of the budget."""
NOISE_SCALE_BY = "autotune.inspect.noise_scale:noise_scale"
NOISE_SECONDS, NOISE_SHARE, NOISE_STEPS = 8.0, 0.1, 16
"""The gradient noise scale is measured so long, and for this share of the budget, at most; if so many steps fit."""
NEARLY = 0.9
"""A threshold of glibc's that is found to be above this share of the expected one is the expected one."""
FOLLOWED_START = 0.06
"""Starting that trial may take this share of the budget."""


@dataclass(frozen=True)
class Result:
    """A finished tuning run."""

    profile: Profile
    path: Path
    inventory: Inventory
    load: Load = QUIET
    """Other processes meanwhile, with their names: for the user's own terminal."""
    note: str = ""
    """Why the profile is in another place than it was asked for, or that it replaced another model's."""


def run(target: Target, options: Options, observe: Observer = ignore, started: float | None = None) -> Result:
    """Tune ``target`` as ``options`` say.

    Args:
        target: the task file or script.
        options: what the user asked for.
        observe: called with all that happens.
        started: on the monotonic clock; the budget counts from here, but for waiting until another run has ended.

    Raises:
        AutotuneError: with the reason and what to do.
        Interrupted: on SIGINT or SIGTERM, after the best so far is written.
    """
    started = time.monotonic() if started is None else started
    check_not_a_rank()
    path = places.checked_place(options.profile) if options.profile else None
    options.check_on(probe(quick=True))  # at once
    inventory = probe()
    options.check_on(inventory)
    name = options.name or target.name
    path = path or places.own_place(machine_type(inventory).key, name, target.path)
    file.check_target(path, name)
    asked = time.monotonic()
    with open_runner(target, inventory, options.seed, options.seconds(), observe) as runner:
        waited = time.monotonic() - asked  # for another run: none of this one's budget
        schedule = Schedule(time.monotonic, started + waited, options.seconds())
        schedule.waited = waited
        return _run_phases(_Job(target, options, inventory, runner, schedule, observe, path, Neighbours()))


class UserTraceback(Exception):
    """The traceback of the user's own code in a trial process, as text."""

    def __str__(self) -> str:
        """Return the text on lines of its own."""
        return f"\n{self.args[0].rstrip()}"


def tune(
    target: str | Path,
    *,
    arguments: str | Sequence[str] = (),
    budget: float | str | None = None,
    profile: str | Path | None = None,
    name: str | None = None,
    level: str | None = None,
    seed: int = 0,
    resume: bool = False,
    train_seconds: float | str | None = None,
    max_memory: int | None = None,
    max_gpu_memory: int | None = None,
    fix: Mapping[str, Any] | None = None,
    only: str | Sequence[str] = (),
    sampler: str | Callable[..., Any] | None = None,
    observe: Observer = ignore,
) -> Profile:
    """Tune a training script or a task file, and write the profile. Durations are seconds, or text such as ``5m``.

    Args:
        target: path of the script or task file.
        arguments: the script's own, as a list or as on a command line.
        budget: for everything; by default 60 to 150 s by the length of a step, more with ``train_seconds`` or no forks.
        profile: where to write; by default ``profiles/<machine key>/<target>.yaml`` in the script's project.
        name: the target's; by default the script's in its project.
        level: to recommend: ``safe``, ``amp`` or ``max``.
        seed: of data order, weights and search.
        resume: go on from an interrupted run.
        train_seconds: how long you will train: lets choices that are slow to start be tried.
        max_memory, max_gpu_memory: bytes that training steps may hold, of the host's memory and of each GPU's.
        fix: knobs that keep a value, such as ``{"num_workers": 2}``.
        only: knobs that may vary; all if empty.
        sampler: an Optuna sampler in place of our own search: ``tpe``, ``random``, ``module:Class``, or a class.
        observe: called with what happens; `autotune.tune` shows it on standard error unless this is given.

    Raises:
        UserCodeError: the user's code failed; its own traceback is the cause.
        AutotuneError: with the reason and what to do.
    """
    wishes: dict[str, Any] = {"name": name, "level": level, "seed": seed, "resume": resume, "fix": fix}
    wishes |= {"max_memory": max_memory, "max_gpu_memory": max_gpu_memory, "sampler": sampler}
    for key, each in {"budget": budget, "train_seconds": train_seconds}.items():
        wishes[key] = durations.seconds(each, key) if isinstance(each, str) else each
    path, knobs = None if profile is None else Path(profile), (only,) if isinstance(only, str) else only
    words = shlex.split(arguments) if isinstance(arguments, str) else [str(each) for each in arguments]
    return _tuned(recognise_target(str(target), words), Options(profile=path, only=knobs, **wishes), observe)


def _tuned(target: Target, options: Options, observe: Observer) -> Profile:
    try:
        return run(target, options, observe).profile
    except UserCodeError as error:
        cause = UserTraceback(error.traceback) if error.traceback else None
        raise UserCodeError(str(error), error.traceback) from cause  # Python prints the traceback of a cause only


def _run_phases(job: _Job) -> Result:
    """Run all phases, from the open runner to the written profile."""
    options = job.options
    task = _probe_run(job)
    state = job.state = _open_state(job, task)
    check_fixed_for(task, state.baseline, options.fix or {})
    _baseline(job, task)
    state.estimate_durations()
    comparison = Comparison(state.baseline, state.bench.compare, job.inventory)
    context = Context(
        job.inventory,
        task,
        state.baseline,
        options.train_seconds,
        budget_seconds=state.schedule.budget,
        start_seconds=state.start_seconds,
        neighbours=job.load().cpus,
        memory=memory_of(state.history, state.baseline),
        load_threads=first_measured(state.history)[1].load_threads,
        max_memory=options.max_memory,
        max_gpu_memory=options.max_gpu_memory,
    )
    job.context = context = replace(context, task=_screened(job, comparison, context))
    if context.device.on_host:
        job.whole_run = _followed(job)  # it may change how trials hold memory
    state.settle, state.spaces = comparison.settle, options.spaces(context)
    state.look_ahead, state.look_closer = job.look_ahead, job.look_closer
    ended: Interrupted | LaunchError | None = None
    try:
        # if the budget ended while a fork server started, the answer stands
        with same_cpus(job.inventory), contextlib.suppress(NothingUsable):
            if not options.only:
                state.advised = try_fixed(state, context)
            search_race_prove(state)
            _decide(job)
        job.observe(stage="writing the profile")
    except (Interrupted, LaunchError) as early:
        ended = early
    return _result(job, comparison, ended)


def search_race_prove(state: RunState) -> None:
    """Do all that follows the baseline; what is found is added to ``state``."""
    state.schedule.search_started = state.schedule.clock()
    search(state)
    candidates = ranked_candidates(state)
    state.chosen = best_of_levels(state, candidates, state.estimate)  # what an interrupted race saves
    state.chosen = race(state, candidates)
    state.chosen = compare_first_steps(state)
    prove(state)


def _decide(job: _Job) -> None:
    """Take a little more time than the usual budget if that decides what is open."""
    more = seconds_to_decide(job.state)
    if job.options.budget is None and 0 < more <= MOST_SECONDS_MORE:
        job.observe(stage="a little more time: it decides a level that is open")
        job.set_budget(job.schedule.budget + more)
        prove(job.state)


@dataclass
class _Job:
    """One run's machine, files and user.

    Attributes:
        path: of the profile.
        neighbours: counts what other processes use meanwhile.
        study, state: where trials are kept, and what is known; from the probe run on.
        context: what the spaces are made of; from the search on.
        whole_run: of a script that was followed.
    """

    target: Target
    options: Options
    inventory: Inventory
    runner: Runner
    schedule: Schedule
    observe: Observer
    path: Path
    neighbours: Neighbours
    study: Study = field(init=False)
    state: RunState = field(init=False)
    context: Context = field(init=False)
    whole_run: WholeRun | None = None

    def look_ahead(self, level: str) -> None:
        """Measure the gradient noise scale before the first search of the ``level`` that alone asks for it."""
        state = self.state
        if level != HIGHEST or level in state.searched:
            return
        self.context = replace(self.context, noise_scale=_noise_scale(self, state.spaces[level]))
        state.count_by(self.context.worth)
        state.spaces = self.options.spaces(self.context)

    def look_closer(self) -> None:
        """Do what takes as long as several trials, once the first candidates are measured."""
        if not self.context.device.on_host:
            self.whole_run = _followed(self)
        self.context = compile_once(self.state, self.context, self.options.spaces, self.options.budget)
        self.set_budget(self.context.budget_seconds)
        self.state.spaces = self.options.spaces(self.context)

    def load(self) -> Load:
        """Return what others took so far."""
        return self.neighbours.load(self.inventory.budget.threads)

    def set_budget(self, seconds: float) -> None:
        """Change the budget: if the user gave none, the baseline's step decides it, and then the first compile."""
        self.schedule.budget = seconds
        self.runner.deadline = self.schedule.deadline
        self.observe(budget=self.schedule.total)


def _probe_run(job: _Job) -> TaskFacts:
    """Load the task, or run the script until it trains, and return the facts of it. Trials can run from then on."""
    runner, schedule = job.runner, job.schedule
    job.observe(stage=job.target.loading)
    patient = runner.setup.script is not None and job.options.budget is None
    runner.deadline = schedule.deadline + (SCRIPT_PATIENCE if patient else 0.0)
    begun = time.monotonic()
    task = replace(runner.describe(), name=job.options.name or job.target.name)
    task = replace(task, project=project.called(job.target.path) if task.script else "")
    if patient:
        schedule.uncounted = time.monotonic() - begun
        runner.deadline = schedule.deadline
    return task


def _open_state(job: _Job, task: TaskFacts) -> RunState:
    """Open the study of the profile, with what a run that is resumed has measured."""
    runner, schedule, script = job.runner, job.schedule, job.runner.setup.script
    from autotune.search.sampler import searches_of  # imports Optuna
    from autotune.search.study import study_of

    wanted = baseline_settings(task, job.inventory)
    own = (runner.setup.task.read_text(), *(script.arguments if script is not None else ()))
    words = (*own, machine_type(job.inventory).key, str(wanted.as_dict()))
    options = job.options
    job.study = study_of(job.path, words, resume=options.resume)
    state = RunState(
        baseline=wanted,
        bench=TrialBench(runner, wanted, options.seed, schedule.patience),
        schedule=schedule,
        spaces={},
        observe=job.observe,
        record=job.study.record,
        new_search=searches_of(options.sampler, options.seed),
    )
    state.within_limits = lambda settings, outcome: (
        outcome if settings == state.baseline else check_memory(outcome, settings, *options.memory)
    )
    state.add(*job.study.trials())
    if options.resume:
        made = len(state.history)
        job.observe(stage=f"going on from {made} earlier trials" if made else "nothing to resume: tuning starts anew")
    return state


def _baseline(job: _Job, task: TaskFacts) -> None:
    """Measure the user's own settings, with which all others are compared."""
    state = job.state
    job.observe(stage="baseline", trying=state.baseline, baseline=state.baseline, unit=task.unit)
    known = next((trial.outcome for trial in reversed(state.history) if trial.settings == state.baseline), None)
    found = known or state.measure(state.baseline, LOWEST).outcome
    outcome = of_own_settings(check_memory(found, state.baseline, *job.options.memory))
    state.bench.remember(outcome)
    again = LIVE_SECONDS + min(MOST_STARTS_SECONDS, STARTS * getattr(outcome, "start_seconds", 0.0))
    job.set_budget(job.options.seconds(outcome) + (again if state.bench.is_live and not job.options.budget else 0.0))


def _followed(job: _Job) -> WholeRun | None:
    """Follow a script past the end of an epoch; None for a task file, and if its trials take long to start."""
    runner, schedule, bench = job.runner, job.schedule, job.state.bench
    most = max(SCREENING_START, FOLLOWED_START * schedule.budget)
    if runner.setup.script is None or bench.timeouts.starting > most * PATIENCE:
        return None
    job.observe(stage="following the script past the end of an epoch")
    seconds = min(FOLLOWED_SECONDS, FOLLOWED_SHARE * schedule.budget)
    _outcome, found = bench.inspect(job.state.baseline, FOLLOWED_BY, seconds, mmap_threshold=0)  # it shows its own
    if not (found and found["step_seconds"]):
        return None
    run = WholeRun(runner.script_seconds, **found)
    if job.context.device.on_host and run.mmap_threshold < NEARLY * bench.mmap_threshold:
        bench.mmap_threshold = run.mmap_threshold
        job.state.measure_anew()
    return run if run.steps or not job.options.train_seconds else run.of(job.options.train_seconds)


def _noise_scale(job: _Job, highest: Space) -> float | None:
    """Measure the gradient noise scale if the space of the ``highest`` level has several batches, and time for it."""
    bench, schedule = job.state.bench, job.schedule
    seconds = min(NOISE_SECONDS, NOISE_SHARE * schedule.budget)
    slow = NOISE_STEPS * first_measured(job.state.history)[1].step_seconds > seconds
    batches = min(len(highest.global_batches), len(highest.values["batch_size"]))  # --only may keep the user's
    if slow or batches < 2 or bench.timeouts.starting > SCREENING_START * PATIENCE:
        return None
    job.observe(stage="measuring the gradient noise scale")
    found = bench.inspect(job.state.baseline, NOISE_SCALE_BY, seconds)[1].get("noise_scale")
    return None if found is None else float(found)


def _screened(job: _Job, comparison: Comparison, context: Context) -> TaskFacts:
    """Compare the screened knobs if there is time. Return the task without values that change training."""
    if job.state.bench.timeouts.starting <= SCREENING_START * PATIENCE:
        job.observe(stage="comparing first steps")
        comparison.screen(job.options.spaces(context)[LOWEST])
    found = (replace(item, value=None) if BY_NAME[item.knob].on_loader else item for item in comparison.left_out)
    return replace(context.task, left_out=(*context.task.left_out, *found))


def _result(job: _Job, comparison: Comparison, ended: Interrupted | LaunchError | None) -> Result:
    """Write the profile of a run that is over, or that ``ended`` early.

    Raises:
        Interrupted, LaunchError: the run ended early; the error carries the place of the best so far.
    """
    state, context, load = job.state, job.context, job.load()
    state.rounds, slower = undisturbed(state.rounds)
    no_fork = job.runner.no_fork_reason
    warnings = (
        *notes.on_gpus(job.inventory),
        *([notes.DISTURBED.format(slower)] if slower else []),
        *comparison.notes(state.chosen.values()),
        *notes.copies(context.task.copied_bytes, state.chosen.values()),
        *([notes.NOT_FORKED.format(no_fork)] if no_fork else []),
    )
    evidence = replace(
        evidence_of(state, context, dict.fromkeys((*state.spaces[HIGHEST].left_out, *comparison.left_out))),
        seconds=round(job.schedule.elapsed, 1),
        partial=ended is not None,
        warnings=warnings,
        load=notes.load_note(load),
        busy=load.is_busy,
        run=job.whole_run,
        advice=advice(state, context),
    )
    answers = (partial_answers if ended else proven_answers)(state, tuple(state.spaces))
    profile = profile_of(state, answers, context, evidence, recommended=job.options.level)
    # before the trials' processes are ended, which takes a moment
    saved, note = file.save(job.path, profile, job.target.path)
    if isinstance(ended, Interrupted):
        raise Interrupted(ended.signal, saved) from ended
    if ended is not None:
        raise LaunchError(f"{ended}\nThe best so far, not proven, is in {saved}.") from ended
    return Result(profile, saved, job.inventory, load, note)
