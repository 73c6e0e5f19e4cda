"""The search: levels one after the other, each within its share of the time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.search.planner import Proposal, rank
from autotune.stats.proof import ANALYSES
from autotune.tuning.race import improving, near_best
from autotune.tuning.schedule import PROOF_MARGIN, proof_seconds, replicate_seconds
from autotune.tuning.state import RunState

RACE_SHARE = 0.15
"""Largest share of the run kept back for the race."""
LEVEL_CANDIDATES = 2
"""Settings of a level that the race is expected to run."""
QUICK_SECONDS = 2.0
"""After trials shorter than this the baseline is repeated more often."""
REPEAT_EVERY = 6
"""Trials of other settings between two of the baseline."""


def search(state: RunState) -> None:
    """Search all levels until the time for it is over; trials are added to ``state``.

    What a level leaves over of its share goes to the next. Each level is searched twice, since what a higher level
    finds helps the lower ones too. The time that is left after that is shared equally: by then expected gains are
    small, so settings rejected in other combinations are tried again.
    """
    shares = [level.shares for level in LEVELS.values()]
    share, whole = 0.0, sum(map(sum, shares))
    for number in range(len(shares[0])):
        if number:
            state.look_closer()
        start = state.baseline
        for level in state.spaces:
            share += LEVELS[level].shares[number] / whole
            start = _search_level(state, level, start, share)
    start = state.baseline
    for done, level in enumerate(state.spaces):
        used = min(1.0, state.schedule.search_share(_kept_back(state)))
        start = _search_level(state, level, start, used + (1 - used) / (len(state.spaces) - done), thorough=True)


def _search_level(state: RunState, level: str, start: Settings, share: float, thorough: bool = False) -> Settings:
    """Search one level until ``share`` of the searching time is used, and return the best settings known in it."""

    def is_time() -> bool:
        used = state.schedule.search_share(_kept_back(state), _usual_seconds(state))
        return used <= share or _must_be_tried(state, level)

    if is_time():
        state.look_ahead(level)
    searching = state.new_search(state.spaces[level], start, thorough, state.history)
    while is_time():
        proposal = _repeat_baseline(state) or searching.ask()
        if proposal is None:
            state.exhausted.add(level)
            break
        state.observe(stage=f"searching: {level}", trying=proposal.settings)
        before = state.schedule.clock()
        searching.tell(state.measure(proposal.settings, level, proposal.give_up_below))
        state.trial_seconds.append(state.schedule.clock() - before)
        _report_trial(state)
    state.searched.add(level)
    return next(iter(rank(state.history, state.spaces[level], 1)), start)


def _repeat_baseline(state: RunState) -> Proposal | None:
    """Return the baseline again, if it is due.

    The first repeat shows at once how far two trials of the same settings differ; later ones show how the machine
    drifts. The baseline is repeated later and less often if trials take long.
    """
    history, own = state.history, state.baseline
    since = next((k for k, o in enumerate(reversed(history)) if o.settings == own), len(history))
    quick = not state.trial_seconds or state.trial_seconds[-1] < QUICK_SECONDS
    due = since >= (REPEAT_EVERY if quick else 2 * REPEAT_EVERY) or (quick and len(history) == 1)
    return Proposal(own) if due else None


def _must_be_tried(state: RunState, level: str) -> bool:
    """Return True if nothing of ``level`` was tried yet, though a trial fits beside the first analysis of what is best.

    What was never tried can never be proven. If nothing is worth a proof so far, a trial is all that must fit.
    """
    if state.tried(level):
        return False
    first = min(ANALYSES) * PROOF_MARGIN * replicate_seconds(state, [state.baseline, state.best])
    return _usual_seconds(state) + (first if _rising(state) else 0.0) < state.schedule.left


def _rising(state: RunState) -> Mapping[str, Settings]:
    """Return the best settings of each level that are clearly faster than all below."""
    best = {level: max(settings, key=state.estimate) for level, settings in near_best(state).items() if settings}
    return improving(state, best, state.estimate)


def _usual_seconds(state: RunState) -> float:
    """Return the usual duration of a trial."""
    return statistics.median(state.trial_seconds or [0.0])


def _kept_back(state: RunState) -> float:
    """Return the seconds for race and proof of every level that may gain, or that was not searched yet."""
    near, rising = near_best(state), _rising(state)
    levels = sum(level in rising or level not in state.searched for level in state.spaces)
    several = [near[level][:LEVEL_CANDIDATES] for level in rising if len(near[level]) > 1]
    racing = replicate_seconds(state, [settings for group in several for settings in group])
    affordable = racing <= RACE_SHARE * state.schedule.whole
    return proof_seconds(state, levels) + (racing if affordable else 0.0)


def _report_trial(state: RunState) -> None:
    """Report the trial that has ended."""
    failures = [trial.outcome.reason for trial in state.history if not trial.outcome.measured]
    state.observe(
        trials=len(state.history),
        failures=len(failures),
        last_failure=failures[-1] if failures else "",
        baseline_rate=state.baseline_rate or None,
        best=state.best,
    )
