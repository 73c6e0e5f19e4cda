"""Estimates how long the phases of a run take, and how much time each may have, by what is known so far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from autotune.knobs.settings import Settings
from autotune.stats.measurement import LASTING
from autotune.stats.outcome import Completed
from autotune.stats.proof import ANALYSES, PRIOR_SPREAD, round_variance
from autotune.tuning.state import RunState

ROUNDS, MOST_ROUNDS = 2, 8
"""Rounds within a replicate: at least, and at most if their scatter makes more of them worth the time."""
BLOCK_SECONDS = 0.15
"""Of a proof's block: more replicates show more than longer ones."""
LONG_BLOCK_SECONDS = 0.6
"""Of any block beside others for which a candidate waits: it runs well and badly in turns of some tenths of a second,
and shorter blocks do not show how often (decision 026)."""
STEPS_IN_BLOCK = 1.5
"""Expected steps in a block whose steps are long: whole steps, so the last one runs over."""
SLOW_STEP_SECONDS = 1.0
"""With longer steps a replicate has one round."""
WARMUP_SECONDS, WARMUP_STEPS = 0.8, 4
"""What a candidate's warm-up usually takes, whichever is longer."""
MOST_GAIN = 3.0
"""A single trial slower than the best rate by more than this was disturbed."""
PROOF_SHARE, EXTENDED_PROOF_SHARE = 0.55, 0.5
"""Largest share of the run that may be kept back for the proof's first analysis, and for later ones. What the
search leaves over pays for more."""
WARM_COMPILE = 0.35
"""A compiled first step takes this share of the first time once the compiler's cache has it: 5 of 16 s were seen."""
RESERVED_ANALYSES = tuple(ANALYSES)[:-1]
"""Time is kept back for these; what the search leaves over pays for the last one."""
PROOF_MARGIN = 1.15
"""Replicates rather take longer than expected."""


def proof_seconds(state: RunState, levels: int) -> float:
    """Return the seconds to keep back so that ``levels`` candidates can be proven."""
    each = PROOF_MARGIN * replicate_seconds(state, [state.baseline] + [state.best] * levels)
    most = EXTENDED_PROOF_SHARE * state.schedule.whole
    affordable = [count * each for count in RESERVED_ANALYSES if count * each <= most]
    return min(max([min(ANALYSES) * each, *affordable]), PROOF_SHARE * state.schedule.whole)


def rounds_that_fit(state: RunState, candidates: Mapping[str, Settings]) -> int:
    """Return the rounds of the proof's next replicate; 0 if not even one round fits.

    As many as are worth the start, but fewer if the replicates up to the second analysis would not fit otherwise, and
    one only if those up to the first would not: few replicates prove little, however long they are.
    """
    starting = state.slowness * starting_seconds(state, candidates.values())
    turns, left = sum(turn_seconds(state, settings) for settings in candidates.values()), state.schedule.left
    worth = rounds_per_replicate(state)
    first, second = (max(1, planned - state.replicates) for planned in list(ANALYSES)[:2])
    for replicates in range(second, 0, -1):
        fitting = (left / replicates - starting) / turns
        if fitting >= (1 if replicates <= first else min(ROUNDS, worth)):
            return int(min(worth, fitting))
    return 0


def replicate_seconds(state: RunState, candidates: Iterable[Settings], block: float = BLOCK_SECONDS) -> float:
    """Return the expected duration of one replicate: every candidate starts, warms up, and takes its blocks."""
    each = list(candidates)
    turns = sum(turn_seconds(state, settings, block) for settings in each)
    return state.slowness * starting_seconds(state, each) + rounds_per_replicate(state) * turns


def starting_seconds(state: RunState, candidates: Iterable[Settings]) -> float:
    """Return the start and warm-up of all processes, by what their trials took."""
    if state.bench.is_live:
        candidates = {settings.start_part: settings for settings in candidates}.values()
    return sum(startup_seconds(state, settings) for settings in candidates)


def startup_seconds(state: RunState, settings: Settings) -> float:
    """Return the start and warm-up of one candidate: as in the last measured trial of its settings, if there is one."""
    warm_up = _warmup_seconds(state, settings)
    for trial in reversed(state.history):
        if trial.settings == settings and trial.measurement is not None and isinstance(trial.outcome, Completed):
            compiling = trial.measurement.first_step_seconds if settings.compile != "off" else 0.0
            return trial.outcome.start_seconds - (1 - WARM_COMPILE) * compiling + warm_up
    return state.start_seconds + warm_up


def _warmup_seconds(state: RunState, settings: Settings) -> float:
    """Return the warm-up of settings, as in their last measured trial, if there is one and it was no longer."""
    usual = max(WARMUP_SECONDS, WARMUP_STEPS * step_seconds(state, settings))
    last = {trial.settings: trial.measurement.warmup_seconds for trial in state.history if trial.measurement}
    return min(usual, last.get(settings) or usual)


def turn_seconds(state: RunState, settings: Settings, block: float = BLOCK_SECONDS) -> float:
    """Return the expected duration of one block, with the change to the settings in a live trial."""
    own = max(block_seconds(state, block), STEPS_IN_BLOCK * step_seconds(state, settings))
    return own + (_warmup_seconds(state, settings) if state.bench.is_live else 0.0)


def block_seconds(state: RunState, usual: float) -> float:
    """Return how long blocks are now that ``usual`` seconds are enough for on a quiet machine. They are longer in a
    running training, too, where each costs a change of settings."""
    return max(usual, LONG_BLOCK_SECONDS) if state.bench.is_live or state.cpu_wait > LASTING else usual


def step_seconds(state: RunState, settings: Settings) -> float:
    """Return the expected duration of one optimizer step.

    Another process may have slowed a single trial many times over, so the best known rate bounds the estimate.
    """
    return _seconds_at(state, settings, max(state.estimate(settings), state.estimate(state.best) / MOST_GAIN))


def _seconds_at(state: RunState, settings: Settings, rate: float) -> float:
    return settings.global_batch * state.items_per_sample * state.worth(settings) / rate if rate else 0.0


def rounds_per_replicate(state: RunState) -> int:
    """Return the rounds that make a replicate worth its start: two-stage sampling (Cochran, Sampling Techniques, 10.6).

    With ``w`` the variance between rounds and ``b`` that between replicates, the least variance for the time is
    reached at ``sqrt(start / turn * w / b)`` rounds.
    """
    own = state.baseline
    if _seconds_at(state, own, state.estimate(own)) > SLOW_STEP_SECONDS:
        return 1
    measured = round_variance([*state.race_rounds, *state.rounds])
    variance = state.noise**2 if measured is None else measured
    start = startup_seconds(state, own) / turn_seconds(state, own)
    return max(ROUNDS, min(MOST_ROUNDS, round(math.sqrt(start * variance) / PRIOR_SPREAD)))
