"""A tuning run from its request to the written profile: baseline, search, race, proof, result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cluster.handshake import identity
from autotune.cluster.listener import Listener
from autotune.cluster.rendezvous import without_mpi
from autotune.core.baseline import baseline_settings
from autotune.core.errors import Interrupted, LaunchError, UsageError
from autotune.core.events import BaselineKnown, BudgetSet, Observer, StageStarted, TrialStarted, ignore
from autotune.core.knobs.knob import LEVELS, Context
from autotune.core.load import QUIET, Load, undisturbed
from autotune.core.machine import machine_type
from autotune.core.outcome import Outcome
from autotune.core.pins import check_pins_on
from autotune.core.profile import Profile, Written
from autotune.core.settings import Settings
from autotune.core.space import Space
from autotune.core.task import TaskFacts
from autotune.core.version import VERSION
from autotune.host import compile_cache
from autotune.host.cpus import on_the_same_cpus
from autotune.host.earlier import earlier_profile
from autotune.host.neighbours import Neighbours
from autotune.host.runner import open_runner
from autotune.host.signals import check_not_a_rank
from autotune.host.speed import machine_notes, matrix_rates
from autotune.inspect.diagnose import QUICK_STEP_SECONDS, quick_verdict
from autotune.inspect.inspection import Bound
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.search.protocol import Observation
from autotune.store import rescue
from autotune.trial.parent.fleet import Fleet
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.paths import StudyPaths
from autotune.trial.script import Target
from autotune.tuning.advice import advised
from autotune.tuning.baseline import Baseline, settle_baseline
from autotune.tuning.compiling import compile_once
from autotune.tuning.finalists import finalists, leaders
from autotune.tuning.journal import study_beside
from autotune.tuning.options import Options
from autotune.tuning.proof import prove
from autotune.tuning.race import race
from autotune.tuning.result import partial_results, profile_of, proven_results, with_saved_path
from autotune.tuning.schedule import Schedule
from autotune.tuning.search import search
from autotune.tuning.state import RunState
from autotune.tuning.tools import Tools

if TYPE_CHECKING:
    from autotune.search.study import Study

MATRIX_RATE_BUDGET = 60.0
"""Shorter runs do without the two seconds (once per boot) that measuring matrix products takes."""
SCRIPT_PATIENCE = 540.0
"""Without ``--budget``, a script may take so much longer than a task file until it trains."""
GATHER_SECONDS = 300.0
"""How long the machines of a run wait for each other."""


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
    listener: Listener | None = None,
    paths: StudyPaths | None = None,
) -> Result:
    """Tune ``target`` as ``options`` say.

    Args:
        target: the task file or script.
        options: what the user asked for.
        observe: called with every event.
        started: on the monotonic clock; the budget counts from here, or from when all machines have met.
        listener: to which the other machines of the run connect; this one alone if None.
        paths: the run's scratch folder, where the task file lies in it already; a new one if None.

    Raises:
        AutotuneError: with the reason and what to do.
        Interrupted: on SIGINT or SIGTERM, after the best so far is written.
    """
    started = time.monotonic() if started is None else started
    check_not_a_rank()
    path = rescue.writable(options.profile) if options.profile else None
    inventory = probe()
    check_pins_on(inventory, options.fix or {})
    nnodes = listener.nnodes if listener else 1
    path = path or rescue.own_place(machine_type(inventory).key, target.name, nnodes)
    with contextlib.ExitStack() as stack:
        fleet = Fleet()
        notes: tuple[str, ...] = ()
        if listener is not None:
            inventory = without_mpi(inventory)
            own = identity(target.path, inventory)
            fleet, notes = stack.enter_context(listener.gather(own, options.seed, GATHER_SECONDS, observe))
            started = time.monotonic()
        patience = options.seconds()
        runner = stack.enter_context(open_runner(target, inventory, options.seed, patience, observe, fleet, paths))
        schedule = Schedule(time.monotonic, started, options.seconds())
        neighbours, earlier = Neighbours(), earlier_profile(target, inventory, nnodes)
        watching = on_the_same_cpus(inventory, neighbours.observing(observe))
        known, notes = earlier.settings, (*notes, *earlier.notes)
        return _run_phases(_Request(options, inventory, runner, schedule, watching, path, notes, neighbours, known))


@dataclass(frozen=True)
class _Request:
    """One run on this machine, ready to start.

    Attributes:
        path: of the profile.
        notes: what the user should know about the machines.
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
    short = schedule.budget < MATRIX_RATE_BUDGET or request.runner.fleet.nnodes > 1
    bound = None if short else _bound(bench, baseline, schedule.deadline, request.observe)
    others = request.neighbours.load(request.inventory.budget.threads).taken
    context = Context(
        request.inventory, task, baseline.settings, options.train_seconds, gflops, schedule.budget, neighbours=others
    )
    state = RunState.after(baseline.settings, [*known, *baseline.trials])
    trial = partial(_trial, request, bench, study)
    context = compile_once(state, context, options.spaces(context)[LEVELS[0]], options.budget, trial, request.observe)
    _set_budget(request, context.budget_seconds)
    tools = _tools(request, bench, study, options.spaces(context))
    ended: Interrupted | LaunchError | None = None
    try:
        search_race_prove(state, tools)
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
        tools.spaces[LEVELS[-1]].left_out,
        recommended=options.level,
        seconds=schedule.elapsed,
        warnings=[*filter(None, [load.note]), *apart, *request.notes, *baseline.notes, *machine_notes(bench)],
        partial=ended is not None,
        written=Written(VERSION, time.strftime("%Y-%m-%d", time.gmtime())),
        nnodes=request.runner.fleet.nnodes,
        why=bound.value if bound is not None else "",
    )
    saved, note = rescue.write(request.path, profile)  # before the trials' processes are ended, which takes a moment
    if any(found.settings.compile != "off" for found in profile.levels.values()):
        compile_cache.keep(request.runner.setup.paths.compile_cache)
    if ended is not None:
        raise with_saved_path(ended, saved) from ended
    return Result(profile, saved, request.inventory, load, note)


def search_race_prove(state: RunState, tools: Tools) -> None:
    """All that follows the baseline; what is found is added to ``state``."""
    tools.schedule.start_search()
    search(state, tools)
    ranked = finalists(state, tools)
    state.chosen = leaders(state, ranked, state.estimate)  # what an interrupted race saves
    state.chosen = race(state, tools, ranked)
    prove(state, tools)


def _bound(bench: TrialBench, baseline: Baseline, deadline: float, observe: Observer) -> Bound | None:
    """What bounds a step of the baseline; None if that cannot be told."""
    measured = baseline.outcome.measurement
    if measured is None or measured.step_seconds > QUICK_STEP_SECONDS:
        return None
    observe(StageStarted("each part of a step"))
    return quick_verdict(bench, baseline.settings, deadline)


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
    if runner.fleet.nnodes > 1 and task.iterable:
        raise UsageError(f"{runner.setup.task}: cannot be trained on several machines: {task.why_not_several}")
    return task


def _open_study(request: _Request, wanted: Settings) -> Study:
    runner = request.runner
    words = [*runner.setup.words, machine_type(request.inventory).key, str(wanted.as_dict())]
    words += [f"{runner.fleet.nnodes} machines"] if runner.fleet.nnodes > 1 else []
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
