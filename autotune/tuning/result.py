"""The last phase: makes a `Profile` from the state of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace

from autotune.knobs.knob import Context
from autotune.knobs.level import AMP, LEVELS
from autotune.knobs.settings import KNOBS, Settings
from autotune.knobs.task_facts import LeftOut, MemoryUse
from autotune.profiles.format import (
    NO_LEVEL,
    Ceiling,
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


def proven_answers(state: RunState, levels: Iterable[str]) -> dict[str, Answer]:
    """Return the answer for each level by the proof."""
    answers = decide(state.baseline, state.baseline_rate, state.chosen, state.rounds, levels)
    for level, found in answers.items():
        if level not in state.chosen:
            answers[level] = replace(found, reason=_without_candidate(state, level))
        elif found.reason is Reason.SAME and LEVELS[level].known_for and not _named(state, level):
            answers[level] = replace(found, reason=Reason.NOT_TRIED)
    if AMP.name in answers and not lower_precision(answers[AMP.name].settings, state.baseline):
        answers[AMP.name] = _with_failed_precision(state, answers[AMP.name])
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
    if any(trial.outcome.measured for trial in named):
        return Reason.SAME
    if any(not trial.cut_short for trial in named):
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


def _known_rates(state: RunState) -> Iterator[float]:
    """Yield rates of the baseline and each candidate: by the proof if it ran, which beats a lucky trial."""
    own = state.estimate(state.baseline)
    yield own
    for level, settings in state.chosen.items():
        proof = compare(state.rounds, level, BASELINE)
        yield own * proof.value if proof.rounds else state.estimate(settings)


def _with_failed_precision(state: RunState, found: Answer) -> Answer:
    """Return why a lower precision never ran, though it was tried; ``found`` if one did or none was tried."""
    lower = [t for t in state.history if not t.cut_short and lower_precision(t.settings, state.baseline)]
    tried = [trial for trial in lower if trial.settings.precision != state.baseline.precision] or lower
    if not tried or any(trial.outcome.measured for trial in tried):
        return found
    values = tuple(map(str, lower_precision(tried[-1].settings, state.baseline)))
    return replace(found, reason=Reason.PRECISION_FAILED, values=values, failure=tried[-1].outcome.reason)


def lower_precision(settings: Settings, baseline: Settings) -> list[str]:
    """Return the values of ``settings`` that level ``amp`` is there for, and that the ``baseline`` has not."""
    own = (knob.name for knob in KNOBS if knob.level is AMP)
    return [getattr(settings, name) for name in own if getattr(settings, name) != getattr(baseline, name)]


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
    profile = Profile(
        machine=machine_type(context.inventory),
        software=versions(context.inventory),
        target=Target(**{each.name: getattr(task, each.name) for each in fields(Target)}),
        recommended=_recommended(state.baseline, answers, recommended or _highest(answers, may_change_batch)),
        baseline=state.baseline,
        baseline_rate=state.baseline_rate,
        levels={
            level: _level_result(level, answer, context, memory_of(state.history, answer.settings))
            for level, answer in answers.items()
        },
        evidence=replace(evidence, warnings=warnings),
        written=Written(VERSION, time.strftime("%Y-%m-%d", time.gmtime())),
    )
    return replace(profile, evidence=replace(evidence, warnings=(*_doubts(profile), *warnings)))


def _level_result(level: str, answer: Answer, context: Context, used: MemoryUse) -> LevelResult:
    note, rate = notes.level_note(level, answer), answer.rate / context.worth(answer.settings)
    memory = used.host(answer.settings.processes), used.gpu
    return LevelResult(answer.settings, rate, answer.speedup, answer.proven, note, answer.verdict.value, *memory)


def memory_of(history: Iterable[Trial], settings: Settings) -> MemoryUse:
    """Return the most that a process held in trials of ``settings``."""
    measured = [trial.measurement.memory for trial in history if trial.settings == settings and trial.measurement]
    return max(measured, key=lambda used: used.peak + used.workers, default=MemoryUse())


def _doubts(profile: Profile) -> Iterator[str]:
    """Doubt gains above what is physically possible: something other than the settings made the baseline slow."""
    impossible = profile.impossible()
    for level in impossible[:1]:
        yield notes.not_believable(", ".join(impossible), profile.levels[level].speedup.value, profile.possible(level))


def evidence_of(state: RunState, context: Context, left_out: Iterable[LeftOut]) -> Evidence:
    """Return what was tried and what was not; the rest is the caller's to add."""
    rates = context.gflops
    return Evidence(
        trials=len(state.history),
        seconds=0.0,
        failures=tuple(_failures(state)),
        not_offered=tuple(left_out),
        noise_scale=context.noise_scale,
        ceiling=Ceiling(rates["fp32"], rates.get("bf16", 0.0)) if "fp32" in rates else None,
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
