"""The search: levels one after the other, each within its share of the time."""

from __future__ import annotations

import statistics

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.search.protocol import Observation, Proposal
from autotune.stats.proof import LOOKS
from autotune.tuning.events import StageStarted, TrialFinished, TrialStarted
from autotune.tuning.finalists import improving, near_best
from autotune.tuning.schedule import PROOF_MARGIN, generation_seconds
from autotune.tuning.state import RunState
from autotune.tuning.tools import Tools

PASSES = ({"safe": 0.35, "amp": 0.2, "max": 0.2}, {"safe": 0.12, "amp": 0.07, "max": 0.06})
"""Shares of the searching time; what a level leaves over goes to the next. Each level is searched twice, since what a
higher level finds helps the lower ones too."""
LAST_PASS = {"safe": 1 / 3, "amp": 1 / 2, "max": 1.0}
"""Each level's share of the time that is left after that. By now expected gains are small, so settings rejected in
other combinations are tried again."""
RACE_SHARE = 0.15
"""Largest share of the run kept back for the race."""
LEVEL_FINALISTS = 2
"""Settings of a level that the race is expected to run."""
QUICK_SECONDS = 2.0
"""After trials shorter than this the baseline is repeated more often."""
REPEAT_EVERY = 6
"""Trials of other settings between two of the baseline."""


def search(state: RunState, tools: Tools) -> None:
    """Search all levels until the time for it is over; trials are added to ``state``."""
    share = 0.0
    for shares in PASSES:
        start = state.baseline
        for level, space in tools.spaces.items():
            share += shares[level]
            start = _search_level(state, tools, space, start, share)
    start = state.baseline
    for level, space in tools.spaces.items():
        used = min(1.0, _used_share(state, tools))
        start = _search_level(state, tools, space, start, used + (1 - used) * LAST_PASS[level], thorough=True)


def _search_level(
    state: RunState, tools: Tools, space: Space, start: Settings, share: float, thorough: bool = False
) -> Settings:
    """Search one level until ``share`` of the searching time is used; returns the best settings known in it."""
    searching = tools.new_search(space, start, thorough)
    tools.observe(StageStarted(f"searching: {space.level}"))
    while not _is_over(state, tools, share) or _must_be_tried(state, tools, space.level):
        proposal = _repeat_baseline(state) or searching.ask()
        if proposal is None:
            break
        tools.observe(TrialStarted(proposal.settings))
        before = tools.schedule.clock()
        outcome = tools.bench.measure(proposal.settings, proposal.give_up_below, tools.schedule.deadline)
        state.trial_seconds.append(tools.schedule.clock() - before)
        searching.tell(proposal, outcome)
        state.add(Observation(proposal.settings, outcome, space.level))
        tools.observe(_trial_finished(state))
    state.searched.add(space.level)
    return next(iter(tools.rank(state.history, space, 1)), start)


def _repeat_baseline(state: RunState) -> Proposal | None:
    """The baseline again, if it is due.

    The first repeat shows at once how far two trials of the same settings differ; later ones show how the machine
    drifts. The baseline is repeated later and less often if trials take long.
    """
    history, own = state.history, state.baseline
    since = next((k for k, o in enumerate(reversed(history)) if o.settings == own), len(history))
    quick = not state.trial_seconds or state.trial_seconds[-1] < QUICK_SECONDS
    due = since >= (REPEAT_EVERY if quick else 2 * REPEAT_EVERY) or (quick and len(history) == 1)
    return Proposal(own, "again", len(history)) if due else None


def _is_over(state: RunState, tools: Tools, share: float) -> bool:
    """True once another trial would take time that belongs to the next level or to the proof."""
    return _used_share(state, tools, _usual_seconds(state)) > share


def _must_be_tried(state: RunState, tools: Tools, level: str) -> bool:
    """Whether nothing of ``level`` was tried yet, though the proof's first look of one contender fits behind a trial.

    What was never tried can never be proven.
    """
    if any(o.level == level and o.settings != state.baseline for o in state.history):
        return False
    look = min(LOOKS) * PROOF_MARGIN * generation_seconds(state, [state.baseline, state.best])
    return _usual_seconds(state) + look < tools.schedule.left


def _usual_seconds(state: RunState) -> float:
    """What a trial takes."""
    return statistics.median(state.trial_seconds or [0.0])


def _used_share(state: RunState, tools: Tools, ahead: float = 0.0) -> float:
    return tools.schedule.search_share(_kept_back(state, tools), ahead)


def _kept_back(state: RunState, tools: Tools) -> float:
    """Seconds for race and proof of every level that may gain, by what is known now, or that was not searched yet."""
    near = near_best(state, tools.spaces)
    best = {level: max(settings, key=state.estimate) for level, settings in near.items() if settings}
    rising = improving(state, best, state.estimate)
    levels = sum(level in rising or level not in state.searched for level in tools.spaces)
    several = [near[level][:LEVEL_FINALISTS] for level in rising if len(near[level]) > 1]
    racing = generation_seconds(state, [settings for finalists in several for settings in finalists])
    affordable = racing <= RACE_SHARE * tools.schedule.whole
    return tools.schedule.proof_seconds(state, levels) + (racing if affordable else 0.0)


def _trial_finished(state: RunState) -> TrialFinished:
    failures = [o.outcome.reason for o in state.history if not o.outcome.measured]
    best = state.best if state.estimates else None
    return TrialFinished(
        trials=len(state.history),
        baseline_rate=state.baseline_rate or None,
        best=best,
        best_rate=state.estimate(best) if best else None,
        failures=len(failures),
        last_failure=failures[-1] if failures else "",
    )
