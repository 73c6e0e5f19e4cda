"""How long the phases of a run take, and how much time each may have. Pure: the clock is passed in.

`Schedule` is the only owner of the deadline. All estimates are functions of what the run knows so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from autotune.knobs.settings import Settings
from autotune.stats.log_ratio import PRIOR_SPREAD
from autotune.stats.measurement import LASTING
from autotune.stats.outcome import Completed
from autotune.stats.proof import LOOKS, round_variance
from autotune.tuning.state import RunState

FINISH_SECONDS = 1.0
"""Kept back from the budget for ending the last trial and writing the profile."""
BASELINE_SHARE, LEAST_PATIENCE, MOST_PATIENCE = 0.4, 10.0, 60.0
"""The baseline's first trial may show no sign of life for this share of the budget, within these seconds."""

ROUNDS, MOST_ROUNDS = 2, 8
"""Rounds within a generation: at least, and at most if their scatter makes more of them worth the time."""
BLOCK_SECONDS = 0.15
"""Of a proof's block: more generations say more than longer ones."""
LONG_BLOCK_SECONDS = 0.6
"""Of any block beside others for which a contender waits: it runs well and badly in turns of some tenths of a second,
and shorter blocks do not say how often (decision 026)."""
STEPS_IN_BLOCK = 1.5
"""Expected steps in a block whose steps are long: whole steps, so the last one runs over."""
SLOW_STEP_SECONDS = 1.0
"""With longer steps a generation has one round."""
WARMUP_SECONDS, WARMUP_STEPS = 0.8, 4
"""What a contender's warm-up usually takes, whichever is longer."""
MOST_GAIN = 3.0
"""A single trial slower than the best rate by more than this was disturbed."""
PROOF_SHARE, EXTENDED_PROOF_SHARE = 0.55, 0.5
"""Largest share of the run that may be kept back for the proof's first look, and for later looks. What the search
leaves over pays for more."""
WARM_COMPILE = 0.35
"""A compiled first step takes this share of the first time once the compiler's cache holds it: 5 of 16 s were seen."""
RESERVED_LOOKS = tuple(LOOKS)[:-1]
"""Time is kept back for these; what the search leaves over pays for the last one."""
PROOF_MARGIN = 1.15
"""Generations rather take longer than expected."""


class Schedule:
    """Owns the deadline of one run.

    Args:
        clock: monotonic seconds.
        started: when the budget began to count, on that clock.
        budget: seconds for everything.

    Attributes:
        uncounted: seconds that the budget does not count: what a script does before it trains.
    """

    def __init__(self, clock: Callable[[], float], started: float, budget: float) -> None:
        self.clock, self.started, self.budget = clock, started, budget
        self.search_started = clock()
        self.uncounted = 0.0

    @property
    def deadline(self) -> float:
        """When measuring must end, on the clock."""
        return self.started + self.uncounted + self.budget - FINISH_SECONDS

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the run."""
        return self.clock() - self.started

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - self.clock()

    @property
    def patience(self) -> float:
        """Seconds without a sign of life that the baseline's first trial may take."""
        return min(MOST_PATIENCE, max(LEAST_PATIENCE, BASELINE_SHARE * self.budget))

    @property
    def whole(self) -> float:
        """Seconds from the start of the search to the deadline."""
        return self.deadline - self.search_started

    def start_search(self) -> None:
        """The search starts now."""
        self.search_started = self.clock()

    def search_share(self, kept_back: float, ahead: float = 0.0) -> float:
        """Share of the searching time that will be over ``ahead`` seconds from now.

        Args:
            kept_back: seconds of the run that belong to race and proof.
            ahead: seconds from now.
        """
        searching = self.whole - kept_back
        return (self.clock() + ahead - self.search_started) / searching if searching > 0 else math.inf

    def proof_seconds(self, state: RunState, levels: int) -> float:
        """Seconds to keep back so that ``levels`` contenders can be proven."""
        each = PROOF_MARGIN * generation_seconds(state, [state.baseline] + [state.best] * levels)
        affordable = [looks * each for looks in RESERVED_LOOKS if looks * each <= EXTENDED_PROOF_SHARE * self.whole]
        return min(max([min(LOOKS) * each, *affordable]), PROOF_SHARE * self.whole)

    def rounds_that_fit(self, state: RunState, contenders: Mapping[str, Settings]) -> int:
        """Rounds of the proof's next generation; 0 if not even one round fits.

        As many as are worth the start, but fewer if the generations up to the second look would not fit otherwise, and
        one only if those up to the first would not: few generations prove little, however long they are.
        """
        starting = starting_seconds(state, contenders.values())
        turns, left = sum(turn_seconds(state, settings) for settings in contenders.values()), self.left
        worth = rounds_per_generation(state)
        first, second = (max(1, look - state.generations) for look in list(LOOKS)[:2])
        for generations in range(second, 0, -1):
            fitting = (left / generations - starting) / turns
            if fitting >= (1 if generations <= first else min(ROUNDS, worth)):
                return int(min(worth, fitting))
        return 0


def generation_seconds(state: RunState, contenders: Iterable[Settings], block: float = BLOCK_SECONDS) -> float:
    """Expected duration of one generation: every contender starts, warms up, and takes its blocks."""
    each = list(contenders)
    turns = sum(turn_seconds(state, settings, block) for settings in each)
    return starting_seconds(state, each) + rounds_per_generation(state) * turns


def starting_seconds(state: RunState, contenders: Iterable[Settings]) -> float:
    """Start and warm-up of all contenders, corrected by what the last generation really took."""
    return state.slowness * sum(startup_seconds(state, settings) for settings in contenders)


def startup_seconds(state: RunState, settings: Settings) -> float:
    """Start and warm-up of one contender: as in the last measured trial of its settings, if there is one."""
    usual = max(WARMUP_SECONDS, WARMUP_STEPS * step_seconds(state, settings))
    for observation in reversed(state.history):
        outcome = observation.outcome
        if observation.settings == settings and isinstance(outcome, Completed) and outcome.measurement:
            compiling = outcome.measurement.first_step_seconds if settings.compile != "off" else 0.0
            start = outcome.start_seconds - (1 - WARM_COMPILE) * compiling
            return start + min(usual, outcome.measurement.warmup_seconds or usual)
    return state.start_seconds + usual


def turn_seconds(state: RunState, settings: Settings, block: float = BLOCK_SECONDS) -> float:
    """Expected duration of one block."""
    return max(block_seconds(state, block), STEPS_IN_BLOCK * step_seconds(state, settings))


def block_seconds(state: RunState, usual: float) -> float:
    """How long blocks are now that ``usual`` seconds are enough for on a quiet machine."""
    return max(usual, LONG_BLOCK_SECONDS) if state.missed > LASTING else usual


def step_seconds(state: RunState, settings: Settings) -> float:
    """Expected duration of one optimizer step.

    Another process may have slowed a single trial many times over, so the best known rate bounds the estimate.
    """
    return _seconds_at(state, settings, max(state.estimate(settings), state.estimate(state.best) / MOST_GAIN))


def _seconds_at(state: RunState, settings: Settings, rate: float) -> float:
    return settings.global_batch * state.items_per_sample / rate if rate else 0.0


def rounds_per_generation(state: RunState) -> int:
    """Rounds that make a generation worth its start: two-stage sampling (Cochran, Sampling Techniques, 10.6).

    With ``w`` the variance between rounds and ``b`` that between generations, the least variance for the time is
    reached at ``sqrt(start / turn * w / b)`` rounds.
    """
    own = state.baseline
    if _seconds_at(state, own, state.estimate(own)) > SLOW_STEP_SECONDS:
        return 1
    measured = round_variance([*state.race_rounds, *state.rounds])
    variance = state.noise**2 if measured is None else measured
    start = startup_seconds(state, own) / turn_seconds(state, own)
    return max(ROUNDS, min(MOST_ROUNDS, round(math.sqrt(start * variance) / PRIOR_SPREAD)))
