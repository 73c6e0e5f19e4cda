"""The last phase: from what a run knows to its `Profile`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.errors import Interrupted, LaunchError
from autotune.knobs.constraints import normalised
from autotune.knobs.knob import LEVELS, Context
from autotune.knobs.settings import Settings
from autotune.knobs.space import LeftOut
from autotune.knobs.table import KNOBS
from autotune.knobs.task import TaskFacts
from autotune.profiles.format import (
    Ceiling,
    Evidence,
    Failure,
    LevelResult,
    NotOffered,
    Profile,
    Target,
    Written,
    machine_type,
    versions,
)
from autotune.search.protocol import Observation
from autotune.stats.decide import BASELINE, SAME, UNREACHED, decide
from autotune.stats.outcome import NotApplied
from autotune.stats.proof import CONFIDENCE, Proof, compare
from autotune.tuning.state import RunState

OWN_ONLY = "cannot tell: nothing but your own settings was tried"
NOISY = "cannot tell: faster in single trials, but by less than they vary; a longer --budget tells"
FASTER = 1.05
"""From this ratio on, a level that was faster in trials is not said to gain nothing."""
KNOWN_FOR = {"amp": "precision", "max": "global_batch"}
"""What levels are named for."""
ALL_FAILED = "cannot tell: all that was tried failed"
NOT_TRIED = {
    "amp": "mixed precision was not tried: same settings as safe",
    "max": "no other batch size was tried: same settings as amp",
}
UNCLEAR = (
    "cannot tell: {values} was tried only with {others}, and that failed; a longer --budget tries it alone: {reason}"
)


def profile_of(
    state: RunState,
    results: Mapping[str, LevelResult],
    context: Context,
    left_out: Sequence[LeftOut],
    *,
    recommended: str | None,
    seconds: float,
    warnings: Sequence[str],
    partial: bool,
    written: Written | None = None,
    why: str = "",
) -> Profile:
    """The profile of a run, complete or not.

    Args:
        state: what was tried and found.
        results: the result of each level.
        context: machine, task and baseline.
        left_out: values that were never offered.
        recommended: the level the user asked for; by default ``amp``, or ``max`` where the task states no batch; a
            lower one where its settings are the same.
        seconds: duration of the whole run.
        warnings: what the user should know.
        partial: True if the run was interrupted.
        written: the tool's version and the day.
        why: what bounds a step of the user's settings; empty if nobody asked.
    """
    task = context.task
    notes = (*task.warnings, *warnings, *_normalisation(context, results), *_replication(state))
    evidence = replace(_evidence(state, context, left_out), seconds=round(seconds, 1), partial=partial, why=why)
    profile = Profile(
        machine=machine_type(context.inventory),
        software=versions(context.inventory),
        target=_target(task),
        recommended=recommended or _recommended(results, "amp" if "batch_size" in task.current else "max"),
        baseline=state.baseline,
        baseline_rate=state.baseline_rate,
        levels=results,
        evidence=replace(evidence, warnings=notes),
        written=written,
    )
    return replace(profile, evidence=replace(profile.evidence, warnings=(*profile.doubts(), *notes)))


def _evidence(state: RunState, context: Context, left_out: Sequence[LeftOut]) -> Evidence:
    """What was tried and what was not; the rest is the run's to say."""
    return Evidence(
        trials=len(state.history),
        seconds=0.0,
        failures=tuple(_failures(state)),
        not_offered=tuple(NotOffered(item.knob, item.value, item.reason) for item in left_out),
        ceiling=ceiling(context.gflops, context.task.flops_per_item),
    )


def _target(task: TaskFacts) -> Target:
    return Target(
        name=task.name,
        unit=task.unit,
        device=task.device,
        parameters=task.parameters,
        samples=task.samples,
        script=task.script,
        compared=task.compared,
    )


def _recommended(results: Mapping[str, LevelResult], highest: str) -> str:
    """The lowest level with the settings of ``highest``; ``highest`` itself where nothing is proven."""
    wanted = results[highest]
    same = [level for level in LEVELS if level in results and results[level].settings == wanted.settings]
    return same[0] if wanted.proven else highest


def proven_results(state: RunState, levels: Sequence[str]) -> dict[str, LevelResult]:
    """The result of each level by the proof."""
    results = decide(state.baseline, state.baseline_rate, state.chosen, state.rounds, levels)
    for level, found in results.items():
        if level not in state.chosen:
            results[level] = replace(found, note=_why_none_chosen(state, level))
        elif found.note == SAME[level] and level in NOT_TRIED and not _named(state, level):
            results[level] = replace(found, note=NOT_TRIED[level])
    failure = _why_no_other_precision(state)
    if failure and not lower_precision(results["amp"].settings, state.baseline):
        results["amp"] = replace(results["amp"], note=failure)
    return results


def _why_none_chosen(state: RunState, level: str) -> str:
    """What trials, and a race where one was held, say about a ``level`` that has no contender in the proof."""
    tried = [o.settings for o in state.history if o.level == level and o.settings != state.baseline]
    if not tried:
        if not any(o.level == level for o in state.history):
            return UNREACHED
        if all(o.settings == state.baseline for o in state.history):
            return OWN_ONLY
        return UNREACHED if level not in NOT_TRIED or _named(state, level) else NOT_TRIED[level]
    raced = not state.raced.isdisjoint(tried)
    if not raced and max(map(state.estimate, tried)) > FASTER * max(_known_rates(state)):
        return NOISY
    named = _named(state, level)
    trials = sum(observation.outcome.measured for observation in named)
    if not trials:
        return ALL_FAILED if named else NOT_TRIED[level]
    nothing, colon, rest = SAME[level].partition(": ")
    return f"{nothing} in {trials} trial{'s' * (trials != 1)}{' and a race' * raced}{colon}{rest}"


def _named(state: RunState, level: str) -> list[Observation]:
    """Trials of what a level is named for: another precision, another global batch; at ``safe`` its own."""
    what, own = KNOWN_FOR.get(level), state.baseline
    if what is None:
        return [o for o in state.history if o.level == level and o.settings != own]
    return [o for o in state.history if getattr(o.settings, what) != getattr(own, what)]


def _known_rates(state: RunState) -> Iterator[float]:
    """Of the baseline and each contender: by the proof where it ran, which is worth more than a lucky trial."""
    own = state.estimate(state.baseline)
    yield own
    for level, settings in state.chosen.items():
        proof = compare(state.rounds, level, BASELINE)
        yield own * proof.value if proof.rounds else state.estimate(settings)


def _why_no_other_precision(state: RunState) -> str | None:
    """Why a lower precision never ran, though it was tried; None if all that were tried ran.

    A failure of several settings at once is no fault of the precision where others of them never ran either.
    """
    lower = [o for o in state.history if lower_precision(o.settings, state.baseline)]
    tried = [o for o in lower if o.settings.precision != state.baseline.precision] or lower
    if not tried or any(o.outcome.measured for o in tried):
        return None
    last = tried[-1].outcome
    values = " ".join(lower_precision(tried[-1].settings, state.baseline))
    others = _always_beside(tried, state)
    if others and not (isinstance(last, NotApplied) and last.knob not in others):
        return UNCLEAR.format(values=values, others=", ".join(others), reason=last.reason)
    return f"no {values}: {last.reason}"


def _always_beside(failed: Sequence[Observation], state: RunState) -> list[str]:
    """Knobs of lower levels whose values were part of all ``failed`` trials and of none that ran."""
    ran = {change for o in state.history if o.outcome.measured for change in _changes(o.settings, state.baseline)}
    common = set.intersection(*(_changes(o.settings, state.baseline) for o in failed))
    own = {knob.name for knob in KNOBS if knob.level == "amp"}
    return sorted(name for name, _ in common - ran if name not in own)


def _changes(settings: Settings, baseline: Settings) -> set[tuple[str, object]]:
    return {(name, mine) for name, (mine, _) in settings.difference(baseline).items()}


def lower_precision(settings: Settings, baseline: Settings) -> list[str]:
    """Values of ``settings`` that level ``amp`` is there for, and the ``baseline`` has not."""
    own = (knob.name for knob in KNOBS if knob.level == "amp")
    return [getattr(settings, name) for name in own if getattr(settings, name) != getattr(baseline, name)]


def partial_results(state: RunState, levels: Sequence[str]) -> dict[str, LevelResult]:
    """The best so far of each level, without proof: what an interrupted run saves."""
    rate, settings = state.baseline_rate, state.baseline
    results: dict[str, LevelResult] = {}
    for level in levels:
        tried = [o.settings for o in state.history if o.level == level and o.rate]
        settings = state.chosen.get(level) or max([settings, *tried], key=state.estimate)
        own = state.estimates.get(settings, rate)
        ratio = Proof(own / rate if rate else 1.0, low=0.0, high=math.inf, confidence=CONFIDENCE, rounds=0)
        results[level] = LevelResult(settings, own, ratio, proven=False, note="interrupted before the proof")
    return results


def ceiling(rates: Mapping[str, float], flops_per_item: float) -> Ceiling | None:
    """The machine's matrix rate and what an item asks of it; None where either is unknown."""
    if not flops_per_item or "fp32" not in rates:
        return None
    return Ceiling(rates["fp32"], rates.get("bf16", 0.0), flops_per_item)


def with_saved_path(ended: Interrupted | LaunchError, saved: Path) -> Interrupted | LaunchError:
    """``ended``, which ended a run early, with the place of the best so far."""
    if isinstance(ended, Interrupted):
        return Interrupted(ended.signal, saved)
    return LaunchError(f"{ended}\nThe best so far, not proven, is in {saved}.")


def _normalisation(context: Context, results: Mapping[str, LevelResult]) -> Iterator[str]:
    """BatchNorm takes its statistics from what one process or replica has: what sharing a batch changes."""
    own = normalised(context.baseline, context.inventory)
    sizes = {normalised(result.settings, context.inventory) for result in results.values()} - {own}
    if context.task.has_batch_norm and sizes:
        others = " or ".join(str(size) for size in sorted(sizes))
        replicated = any(result.settings.data_parallel for result in results.values())
        keep = "--fix data_parallel=False" if replicated else "torch.nn.SyncBatchNorm or --fix processes=1"
        yield f"BatchNorm normalises over {others} samples instead of {own}; {keep} keeps it"


def _replication(state: RunState) -> Iterator[str]:
    """What `torch.nn.DataParallel` costs: its best trial against the most alike of several processes."""
    rate = state.estimate
    replicated = max((s for s in state.estimates if s.data_parallel), key=rate, default=None)
    several = [s for s in state.estimates if s.processes > 1]
    if replicated is not None and several:
        shape = {"processes", "backend", "data_parallel", "binding", "threads", "batch_size", "num_workers"}
        other = min(several, key=lambda s: (len(set(s.difference(replicated)) - shape), -rate(s)))
        yield (
            f"torch.nn.DataParallel reached {rate(replicated) / rate(other):.2f}x of the rate of"
            f" {other.processes} processes with the same batch (single trials)"
        )


def _failures(state: RunState) -> Iterator[Failure]:
    for observation in state.history:
        if not observation.outcome.measured:
            changed = {name: mine for name, (mine, _) in observation.settings.difference(state.baseline).items()}
            yield Failure(observation.outcome.kind, observation.outcome.reason, changed)
