"""The last phase: makes a `Profile` from the state of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace

from autotune.knobs.knob import Context
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import LeftOut, MemoryUse
from autotune.profiles.format import (
    NO_LEVEL,
    Evidence,
    Failure,
    LevelResult,
    Profile,
    Target,
    Written,
    machine_type,
    versions,
)
from autotune.search.history import Trial
from autotune.stats.decide import Answer, Reason, decide
from autotune.stats.proof import BASELINE, CONFIDENCE, Proof, compare
from autotune.tuning import notes
from autotune.tuning.state import RunState
from autotune.version import VERSION

FASTER = 1.05
"""From this ratio on, a level that was faster in trials is not reported as without gain."""
VERY_NOISY = 0.15
"""Trials of the same settings that vary by so much do not show that there is no gain."""


def proven_answers(state: RunState, levels: Iterable[str]) -> dict[str, Answer]:
    """Return the answer for each level by the proof."""
    answers = decide(state.baseline, state.baseline_rate, state.chosen, state.rounds, levels)
    for level, found in answers.items():
        reason, failures = found.reason, _failures_of(state, level)
        if level not in state.chosen:
            reason = _without_candidate(state, level)
        elif reason is Reason.SAME and LEVELS[level].known_for and not _any_measured(_named(state, level)):
            reason = Reason.ALL_FAILED if failures else Reason.NOT_TRIED
        answers[level] = replace(found, reason=reason, failure=failures[-1] if reason is Reason.ALL_FAILED else "")
    return answers


def _without_candidate(state: RunState, level: str) -> Reason:
    """Return why a ``level`` has no candidate in the proof, by trials and by a race if there was one."""
    tried, named, known_for = state.tried(level), _named(state, level), LEVELS[level].known_for
    if not tried:
        searched = level in state.exhausted or _adds_nothing(state, level)
        return Reason.NOT_REACHED if not searched or (known_for and named) else Reason.NOT_TRIED
    if known_for and not named:
        return Reason.NOT_TRIED
    raced = not state.raced.isdisjoint(tried)
    if not raced and max(map(state.estimate, tried)) > FASTER * max(_known_rates(state)):
        return Reason.NOISY
    if _any_measured(named):
        return Reason.NOISY if state.noise > VERY_NOISY else Reason.SAME
    if _failures_of(state, level):
        return Reason.ALL_FAILED
    return Reason.NOT_REACHED if named else Reason.NOT_TRIED


def _adds_nothing(state: RunState, level: str) -> bool:
    """Return True if ``--only`` and ``--fix`` leave ``level`` no more than the level below it."""
    values = [state.spaces[each].values for each in (*LEVELS[level].below, level) if each in state.spaces]
    return len(values) > 1 and values[-1] == values[-2]


def _named(state: RunState, level: str) -> list[Trial]:
    """Return trials of what a level is named for: another precision, another global batch; at ``safe`` its own."""
    what, own = LEVELS[level].known_for, state.baseline
    if what is None:
        return [trial for trial in state.history if trial.level == level and trial.settings != own]
    return [trial for trial in state.history if getattr(trial.settings, what) != getattr(own, what)]


def _any_measured(trials: Iterable[Trial]) -> bool:
    return any(trial.outcome.measured for trial in trials)


def _failures_of(state: RunState, level: str) -> list[str]:
    """Return why trials of what a level is named for failed."""
    return [t.outcome.reason for t in _named(state, level) if not (t.outcome.measured or t.cut_short)]


def _known_rates(state: RunState) -> Iterator[float]:
    """Yield rates of the baseline and each candidate: by the proof if it ran, which beats a lucky trial."""
    own = state.estimate(state.baseline)
    yield own
    for level, settings in state.chosen.items():
        proof = compare(state.rounds, level, BASELINE)
        yield own * proof.value if proof.rounds else state.estimate(settings)


def partial_answers(state: RunState, levels: Iterable[str]) -> dict[str, Answer]:
    """Return the best so far of each level, without proof: what an interrupted run saves."""
    rate, settings = state.baseline_rate, state.baseline
    answers: dict[str, Answer] = {}
    for level in levels:
        tried = [trial.settings for trial in state.history if trial.level == level and trial.rate]
        settings = state.chosen.get(level) or max([settings, *tried], key=state.estimate)
        own = state.estimates.get(settings, rate)
        ratio = Proof(own / rate if rate else 1.0, low=0.0, high=math.inf, confidence=CONFIDENCE, rounds=0)
        answers[level] = Answer(settings, own, ratio, proven=False, reason=Reason.INTERRUPTED)
    return answers


def profile_of(
    state: RunState, answers: Mapping[str, Answer], context: Context, evidence: Evidence, *, recommended: str | None
) -> Profile:
    """Return the profile of a run, complete or not.

    Args:
        state: what was tried and found.
        answers: for each level.
        context: machine, task and baseline.
        evidence: of the run, see `evidence_of`.
        recommended: the level the user asked for; by default the highest that keeps the batch, or the highest of all
            if the task states no batch; a lower one if its settings are the same, none if they
            are the user's own.
    """
    task = context.task
    may_change_batch = "batch_size" not in task.current and context.noise_scale is not None
    warnings = (*task.warnings, *evidence.warnings, *_batch_norm(context, answers))
    return Profile(
        machine=machine_type(context.inventory),
        software=versions(context.inventory),
        target=Target(**{each.name: getattr(task, each.name) for each in fields(Target)}),
        recommended=_recommended(state.baseline, answers, recommended or _highest(answers, may_change_batch)),
        baseline=state.baseline,
        baseline_rate=state.baseline_rate,
        levels={level: _level_result(level, answer, context, state) for level, answer in answers.items()},
        evidence=replace(evidence, warnings=warnings),
        written=Written(VERSION, time.strftime("%Y-%m-%d", time.gmtime())),
    )


def _level_result(level: str, answer: Answer, context: Context, state: RunState) -> LevelResult:
    used, settings = memory_of(state.history, answer.settings), answer.settings
    own, first = _first_step(state.history, state.baseline), _first_step(state.history, settings)
    return LevelResult(
        settings,
        answer.rate / context.worth(settings),
        answer.speedup,
        answer.proven,
        notes.level_note(level, answer),
        answer.verdict.value,
        used.host(settings.processes),
        used.gpu,
        round(max(0.0, first - own), 2) if own and first else 0.0,
    )


def _first_step(history: Iterable[Trial], settings: Settings) -> float:
    """Return the seconds of the first step in the quickest trial of ``settings``; 0 if none was measured."""
    trials = (trial.measurement for trial in history if trial.settings == settings)
    return min((each.first_step_seconds for each in trials if each), default=0.0)


def memory_of(history: Iterable[Trial], settings: Settings) -> MemoryUse:
    """Return the most that a process held in trials of ``settings``."""
    measured = [trial.measurement.memory for trial in history if trial.settings == settings and trial.measurement]
    return max(measured, key=lambda used: used.peak + used.workers, default=MemoryUse())


def evidence_of(state: RunState, context: Context, left_out: Iterable[LeftOut]) -> Evidence:
    """Return what was tried and what was not; the rest is the caller's to add."""
    return Evidence(
        trials=len(state.history),
        seconds=0.0,
        failures=tuple(_failures(state)),
        not_offered=tuple(left_out),
        noise_scale=context.noise_scale,
    )


def _recommended(baseline: Settings, answers: Mapping[str, Answer], wanted: str) -> str:
    """Return the lowest level with the settings of the ``wanted`` one; no level if these are the ``baseline``."""
    settings = answers[wanted].settings
    if settings == baseline:
        return NO_LEVEL
    return next(level for level in LEVELS if level in answers and answers[level].settings == settings)


def _highest(answers: Mapping[str, Answer], any_batch: bool) -> str:
    """Return the highest level that keeps the batch, or of all."""
    return [level for level in answers if any_batch or not LEVELS[level].any_batch][-1]


def _failures(state: RunState) -> Iterator[Failure]:
    for trial in state.history:
        if not trial.outcome.measured:
            changed = {name: mine for name, (mine, _) in trial.settings.difference(state.baseline).items()}
            yield Failure(trial.outcome.kind, trial.outcome.reason, changed)


def _batch_norm(context: Context, answers: Mapping[str, Answer]) -> Iterator[str]:
    own = context.baseline.batch_size
    sizes = {answer.settings.batch_size for answer in answers.values() if answer.settings.batch_size < own}
    if context.task.has_batch_norm and sizes:
        yield notes.batch_norm(own, sorted(sizes))
