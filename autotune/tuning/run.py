"""A tuning run from its request to the written profile: baseline, search, race, proof, result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import Interrupted, LaunchError
from autotune.inspect.diagnose import QUICK_STEP_SECONDS, quick_verdict
from autotune.inspect.inspection import Bound
from autotune.knobs.baseline import baseline_settings
from autotune.knobs.knob import LEVELS, Context
from autotune.knobs.pins import check_pins_on
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.knobs.table import BY_NAME
from autotune.knobs.task import TaskFacts
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles import file
from autotune.profiles.format import Profile, Written
from autotune.profiles.machine import machine_type
from autotune.search.protocol import Observation
from autotune.stats.neighbours import QUIET, Load, undisturbed
from autotune.stats.outcome import Outcome
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_bench import PATIENCE, TrialBench
from autotune.trial.paths import StudyPaths
from autotune.trial.target import Target
from autotune.tuning import host_compile_cache as compile_cache
from autotune.tuning.advice import advised
from autotune.tuning.baseline import Baseline, settle_baseline
from autotune.tuning.comparing import Comparison, kept
from autotune.tuning.compiling import compile_once
from autotune.tuning.events import BaselineKnown, BudgetSet, Observer, StageStarted, TrialStarted, ignore
from autotune.tuning.finalists import finalists, leaders
from autotune.tuning.host_cpus import on_the_same_cpus
from autotune.tuning.host_earlier import earlier_profile
from autotune.tuning.host_neighbours import Neighbours
from autotune.tuning.host_runner import open_runner
from autotune.tuning.host_signals import check_not_a_rank
from autotune.tuning.host_speed import machine_notes, matrix_rates
from autotune.tuning.journal import study_beside
from autotune.tuning.options import Options
from autotune.tuning.proof import prove
from autotune.tuning.race import race
from autotune.tuning.result import partial_results, profile_of, proven_results, with_saved_path
from autotune.tuning.schedule import Schedule
from autotune.tuning.search import search
from autotune.tuning.state import RunState
from autotune.tuning.tools import Tools
from autotune.version import VERSION

if TYPE_CHECKING:
    from autotune.search.study import Study

MATRIX_RATE_BUDGET = 60.0
"""Shorter runs do without the two seconds (once per boot) that measuring matrix products takes."""
SCRIPT_PATIENCE = 540.0
"""Without ``--budget``, a script may take so much longer than a task file until it trains."""
SCREENING_START = 2.0
"""Trials that take longer to start, in seconds, are not spent on screening: only winners are compared."""


@dataclass(frozen=True)
class Result:
    """A finished tuning run."""

    profile: Profile
    path: Path
    inventory: Inventory
    load: Load = QUIET
    """Other processes meanwhile, with their names: for the user's own terminal."""
    note: str = ""
    """Why the profile is in another place than it was asked for."""


def run(
    target: Target,
    options: Options,
    observe: Observer = ignore,
    started: float | None = None,
    paths: StudyPaths | None = None,
) -> Result:
    """Tune ``target`` as ``options`` say.

    Args:
        target: the task file or script.
        options: what the user asked for.
        observe: called with every event.
        started: on the monotonic clock; the budget counts from here.
        paths: the run's scratch folder, where the task file lies in it already; a new one if None.

    Raises:
        AutotuneError: with the reason and what to do.
        Interrupted: on SIGINT or SIGTERM, after the best so far is written.
    """
    started = time.monotonic() if started is None else started
    check_not_a_rank()
    path = file.checked_place(options.profile) if options.profile else None
    inventory = probe()
    check_pins_on(inventory, options.fix or {})
    path = path or file.own_place(machine_type(inventory).key, target.name)
    with open_runner(target, inventory, options.seed, options.seconds(), observe, paths) as runner:
        schedule = Schedule(time.monotonic, started, options.seconds())
        neighbours, earlier = Neighbours(), earlier_profile(target, inventory)
        watching = on_the_same_cpus(inventory, neighbours.observing(observe))
        return _run_phases(
            _Request(options, inventory, runner, schedule, watching, path, earlier.notes, neighbours, earlier.settings)
        )


@dataclass(frozen=True)
class _Request:
    """One run on this machine, ready to start.

    Attributes:
        path: of the profile.
        notes: what the user should know about the earlier profile.
        neighbours: counts what other processes use meanwhile.
        known: settings of an earlier profile, by level: the search begins with them.
    """

    options: Options
    inventory: Inventory
    runner: Runner
    schedule: Schedule
    observe: Observer
    path: Path
    notes: tuple[str, ...]
    neighbours: Neighbours
    known: Mapping[str, Sequence[Settings]]


def _run_phases(request: _Request) -> Result:
    """From the open runner to the written profile. The study's journal lies beside it."""
    options, schedule = request.options, request.schedule
    gflops, task = _matrix_rates(request), _load_task(request)
    wanted = baseline_settings(task, request.inventory)
    study = _open_study(request, wanted)
    bench = TrialBench(request.runner, wanted, options.seed, schedule.patience)
    known = study.observations()
    baseline = _measure_baseline(request, bench, study, task, known)
    _set_budget(request, options.seconds(baseline.outcome))
    short = schedule.budget < MATRIX_RATE_BUDGET
    bound = None if short else _bound(bench, baseline, schedule.deadline, request.observe)
    others = request.neighbours.load(request.inventory.budget.threads).cpus
    context = Context(
        request.inventory, task, baseline.settings, options.train_seconds, gflops, schedule.budget, neighbours=others
    )
    state = RunState.after(baseline.settings, [*known, *baseline.trials])
    trial = partial(_trial, request, bench, study)
    comparison = _screened(request, bench, context)
    context = replace(context, task=_without(task, comparison))
    context = compile_once(state, context, options.spaces(context)[LEVELS[0]], options.budget, trial, request.observe)
    _set_budget(request, context.budget_seconds)
    tools = _tools(request, bench, study, options.spaces(context))
    ended: Interrupted | LaunchError | None = None
    try:
        search_race_prove(state, tools, comparison)
        request.observe(StageStarted("writing the profile"))
    except (Interrupted, LaunchError) as early:
        ended = early
    study.keep_rounds(state.rounds)
    load = request.neighbours.load(request.inventory.budget.threads)
    state.rounds, apart = undisturbed(state.rounds)
    results = (partial_results if ended else proven_results)(state, tuple(tools.spaces))
    profile = profile_of(
        state,
        results if ended else advised(state, results, schedule.elapsed),
        context,
        (*tools.spaces[LEVELS[-1]].left_out, *comparison.later),
        recommended=options.level,
        seconds=schedule.elapsed,
        warnings=[
            *filter(None, [load.note]),
            *apart,
            *request.notes,
            *baseline.notes,
            *comparison.notes(state.chosen.values()),
            *machine_notes(bench),
        ],
        partial=ended is not None,
        written=Written(VERSION, time.strftime("%Y-%m-%d", time.gmtime())),
        why=bound.value if bound is not None else "",
    )
    saved, note = file.save(request.path, profile)  # before the trials' processes are ended, which takes a moment
    if any(found.settings.compile != "off" for found in profile.levels.values()):
        compile_cache.keep(request.runner.setup.paths.compile_cache)
    if ended is not None:
        raise with_saved_path(ended, saved) from ended
    return Result(profile, saved, request.inventory, load, note)


def search_race_prove(state: RunState, tools: Tools, comparison: Comparison) -> None:
    """Do all that follows the baseline; what is found is added to ``state``."""
    tools.schedule.start_search()
    search(state, tools)
    ranked = finalists(state, tools)
    state.chosen = leaders(state, ranked, state.estimate)  # what an interrupted race saves
    state.chosen = race(state, tools, ranked)
    state.chosen = kept(state, comparison, tools)
    prove(state, tools)


def _screened(request: _Request, bench: TrialBench, context: Context) -> Comparison:
    """The comparison of first steps, with what the screened knobs do known if that does not take too long."""

    def compare(settings: Settings) -> Outcome:
        return bench.compare(settings, request.schedule.deadline)

    comparison = Comparison(bench.baseline, compare, request.inventory)
    if bench.timeouts.starting <= SCREENING_START * PATIENCE:
        request.observe(StageStarted("comparing first steps"))
        comparison.screen(request.options.spaces(context)[LEVELS[0]])
    return comparison


def _without(task: TaskFacts, comparison: Comparison) -> TaskFacts:
    """``task``, of which the values that change training are left out."""
    found = (
        (item.knob, None if BY_NAME[item.knob].on_loader is not None else item.value, item.reason)
        for item in comparison.left_out
    )
    return replace(task, left_out=(*task.left_out, *found))


def _matrix_rates(request: _Request) -> dict[str, float]:
    """Rates of matrix products by precision; empty if the run is too short to measure them."""
    if request.schedule.budget < MATRIX_RATE_BUDGET:
        return {}
    request.observe(StageStarted("measuring matrix products"))
    return matrix_rates()


def _load_task(request: _Request) -> TaskFacts:
    runner, schedule = request.runner, request.schedule
    script = runner.setup.script is not None
    request.observe(StageStarted("running the script until it trains" if script else "loading the task"))
    patient = script and request.options.budget is None
    runner.deadline = schedule.deadline + (SCRIPT_PATIENCE if patient else 0.0)
    begun = time.monotonic()
    task = runner.describe()
    if patient:
        schedule.uncounted = time.monotonic() - begun
        runner.deadline = schedule.deadline
    return task


def _open_study(request: _Request, wanted: Settings) -> Study:
    words = [*request.runner.setup.words, machine_type(request.inventory).key, str(wanted.as_dict())]
    return study_beside(request.path, words, resume=request.options.resume)


def _measure_baseline(
    request: _Request, bench: TrialBench, study: Study, task: TaskFacts, known: Sequence[Observation]
) -> Baseline:
    """Find the baseline's settings, and let ``bench`` compare all others with them."""
    wanted = bench.baseline
    request.observe(BaselineKnown(wanted, task.unit))
    request.observe(TrialStarted(wanted))
    request.observe(StageStarted("baseline"))
    baseline = settle_baseline(wanted, known, partial(_trial, request, bench, study))
    bench.baseline = baseline.settings
    bench.remember(baseline.outcome)
    request.observe(BaselineKnown(baseline.settings, task.unit))
    return baseline


def _trial(
    request: _Request, bench: TrialBench, study: Study, settings: Settings, seconds: float | None = None
) -> Outcome:
    """One trial before the search, in at most ``seconds``; within the run if None."""
    schedule = request.schedule
    deadline = schedule.deadline if seconds is None else schedule.clock() + seconds
    outcome = bench.measure(settings, 0.0, deadline)
    study.record(Observation(settings, outcome, LEVELS[0]))
    return outcome


def _set_budget(request: _Request, seconds: float) -> None:
    """If the user gave no budget, the baseline's step decides it, and then the first compile."""
    if seconds != request.schedule.budget:
        request.schedule.budget = seconds
        request.runner.deadline = request.schedule.deadline
        request.observe(BudgetSet(seconds))


def _tools(request: _Request, bench: TrialBench, study: Study, spaces: Mapping[str, Space]) -> Tools:
    from autotune.search.sampler import StagedSearch
    from autotune.search.staged import rank

    return Tools(
        bench=bench,
        spaces=spaces,
        schedule=request.schedule,
        new_search=partial(StagedSearch, study, seed=request.options.seed, known=request.known),
        rank=rank,
        observe=request.observe,
    )


def _bound(bench: TrialBench, baseline: Baseline, deadline: float, observe: Observer) -> Bound | None:
    """Return what bounds a step of the baseline; None if that cannot be told."""
    measured = baseline.outcome.measurement
    if measured is None or measured.step_seconds > QUICK_STEP_SECONDS:
        return None
    observe(StageStarted("each part of a step"))
    return quick_verdict(bench, baseline.settings, deadline)
