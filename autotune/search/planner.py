"""The project's own search method: baseline, a few designed trials, coordinate moves, then a small model.

Small spaces are enumerated. In others the candidates are what lies near the best, and a sample of the rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.knobs.knob import TRACKING
from autotune.knobs.settings import BY_NAME, KNOB_NAMES, KNOBS, Settings
from autotune.knobs.space import Space
from autotune.search.history import Trial
from autotune.search.prior import Prior, trial_seconds
from autotune.search.surrogate import Surrogate, expected_improvement
from autotune.stats.outcome import NotApplied, Outcome, OutOfMemory, WrongNumbers

SMALL = 1500
"""Spaces with no more combinations than this are enumerated."""
PAIRS = 80
RANDOM = 30
WORTHWHILE = 0.003
"""Stop if no settings are expected to gain more than this share of the rate."""
STUCK = 0.008
"""The same once the last `PATIENCE` trials brought no gain: small expected gains have not come true by then."""
PATIENCE = 8
THOROUGH = 2.0
"""A thorough search does not stop if expected gains are small. It widens the model's deviations by this factor, so that
settings rejected in other combinations are tried again."""
CLEAR_LOSER = 0.7
"""A trial below this share of the best rate may end early."""
DESIGNED = 2
"""A level's first trials may jump to where the expected rate is highest. (The first of all is the baseline.)"""
CLEAR_GAIN = 0.3
"""A jump with a smaller expected gain in log rate may fail to gain by noise alone."""
EXTENT = ("global batch", "processes x threads", "num_workers")
"""Decisions on how much of everything to use."""
CLIMB = 12
"""Moves of such a jump at most."""
CHANGES_NUMBERS = [knob.name for knob in KNOBS if knob.keeps == TRACKING or knob.name == "compile"]
CHANGES_MEMORY = [knob.name for knob in KNOBS if knob.changes_memory]
QUICK_START = 1.0
"""Settings whose process takes more seconds to start are not tried on a guess alone."""
GROWTH = 4
"""A batch may be at most this many times the largest that fitted: memory use grows step by step."""


@dataclass(frozen=True)
class Proposal:
    """Settings worth a trial.

    Attributes:
        settings: what to run.
        give_up_below: items/s below which the trial may end early, clearly lost; 0 means never.
    """

    settings: Settings
    give_up_below: float = 0.0


class Planner:
    """The project's own search of one level. Pure: what it proposes follows from its arguments and the history alone,
    so that resuming is exact.

    Args:
        space: feasible settings of the level.
        start: the baseline, or the best of the level below; tried by now.
        thorough: look further if expected gains are small, instead of stopping.
        seed: of the candidates' sampling.
    """

    def __init__(self, space: Space, start: Settings, thorough: bool = False, *, seed: int = 0) -> None:
        self._thorough = thorough
        self.space = space
        self._start = start
        self._seed = seed
        self._all = tuple(space.enumerate()) if combinations(space) <= SMALL else None

    def propose(self, history: Sequence[Trial]) -> Settings | None:
        """Return what to try after ``history``, which has the run's trials of all levels, at least one measured in this
        space; None if no settings are expected to gain enough, or none are left."""
        model = Surrogate(history, Prior(self.space, history), self.space.context.device)
        best = rank(history, self.space, 3, model=model, baseline=True)
        avoid = Forbidden(history)
        jump = self._jump(history, model, best[0], avoid) or self._halfway(history, avoid)
        if jump is not None:
            return self._choose([jump], 0.0, model, best[0], history)
        around = [self.space.conformed(settings) for settings in best]
        rng = np.random.default_rng((self._seed, len(history)))
        everything = candidates(self.space, around, rng) if self._all is None else self._all
        pool = [settings for settings in everything if not avoid(settings)]
        enough = STUCK if self._stuck(history, model, best[0]) else WORTHWHILE
        return self._choose(pool, enough, model, best[0], history) if pool else None

    def _stuck(self, history: Sequence[Trial], model: Surrogate, best: Settings) -> bool:
        """Return True if this level's last `PATIENCE` trials all failed to beat what was known before them."""
        if len(self._own(history)) <= PATIENCE:
            return False
        before = [o.settings for o in history[:-PATIENCE] if o.value is not None]
        rates = model.log_rates([best, *before])
        return bool(rates[1:].max(initial=-math.inf) >= rates[0] - WORTHWHILE)

    def _choose(
        self, pool: Sequence[Settings], enough: float, model: Surrogate, best: Settings, history: Sequence[Trial]
    ) -> Settings | None:
        """Return what improves most per second of trial, as expected; None if nothing improves ``enough``."""
        mean, deviation = model.gains(pool, best)
        improvement = expected_improvement(mean, deviation)
        if improvement.max() < enough:
            improvement = expected_improvement(mean, THOROUGH * deviation)
            if not self._thorough or improvement.max() < enough:
                return None
        rate = math.exp(float(model.log_rates([best])[0]))
        tried = {trial.settings for trial in history}
        seconds = [trial_seconds(settings, rate, tried, self.space.context) for settings in pool]
        return pool[int(np.argmax(improvement / np.array(seconds)))]

    def _jump(self, history: Sequence[Trial], model: Surrogate, best: Settings, avoid: Forbidden) -> Settings | None:
        """Climb move by move to the highest expected rate; None if this level has jumped already."""
        if len(self._own(history)) >= DESIGNED:
            return None
        settings = self.space.conformed(best)
        top = float(model.log_rates([settings])[0])
        for _ in range(CLIMB):
            moves = [s for _, s in self.space.moves(settings) if not avoid.fails(s) and self._starts_soon(s)]
            rates = model.log_rates(moves) if moves else np.array([-math.inf])
            if rates.max() <= top + 1e-9:
                break
            settings, top = moves[int(rates.argmax())], float(rates.max())
        return None if avoid(settings) else settings

    def _starts_soon(self, settings: Settings) -> bool:
        """Return True if ``settings`` need no other process, or one that starts quickly."""
        context = self.space.context
        return settings.start_part == context.baseline.start_part or context.start_seconds < QUICK_START

    def _halfway(self, history: Sequence[Trial], avoid: Forbidden) -> Settings | None:
        """Return settings between the start and a jump that gained less than half of what was expected."""
        own = self._own(history)
        if len(own) != DESIGNED or own[-1].settings not in self.space:
            return None
        jumped, value = own[-1].settings, own[-1].value
        known = [o.value for o in history if o.value is not None and o.settings == self._start]
        prior = Prior(self.space, history)
        expected = prior(jumped) - prior(self._start)
        if expected < CLEAR_GAIN or (value is not None and known and value - known[-1] > expected / 2):
            return None
        near = [jumped]
        for decision in EXTENT:
            near += [s for one in near for what, s in self.space.moves(one) if what == decision]
        middle = [(a + b) / 2 for a, b in zip(extent(self._start), extent(jumped), strict=True)]
        return min((s for s in near if not avoid(s)), key=lambda s: math.dist(extent(s), middle), default=None)

    def _own(self, history: Sequence[Trial]) -> list[Trial]:
        """Return this level's trials."""
        return [o for o in history if o.level == self.space.level]


def extent(settings: Settings) -> tuple[float, ...]:
    """Return how much of everything settings use, on scales of doublings."""
    parts = (settings.global_batch, settings.processes, settings.threads, 1 + settings.num_workers)
    return tuple(math.log2(part) for part in parts)


def rank(
    history: Sequence[Trial], space: Space, count: int, *, model: Surrogate | None = None, baseline: bool = False
) -> tuple[Settings, ...]:
    """Return the best distinct settings measured so far, best first, by posterior mean (shrunk for noise).

    Args:
        history: all trials so far.
        space: only its settings count.
        count: how many at most.
        model: a posterior of ``history``, if one is at hand.
        baseline: whether the space's baseline may be among them.
    """
    settings = list(dict.fromkeys(o.settings for o in history if o.value is not None and o.settings in space))
    if not baseline:
        settings = [s for s in settings if s != space.context.baseline]
    if not settings:
        return ()
    model = model or Surrogate(history, Prior(space, history), space.context.device)
    order = np.argsort(-model.log_rates(settings), kind="stable")
    return tuple(settings[int(k)] for k in order[:count])


def clear_loser(history: Sequence[Trial], space: Space, settings: Settings) -> float:
    """Return the items/s below which a trial of ``settings`` may end early: a share of the best rate, shrunk for noise,
    for a lucky trial must not end good ones."""
    model = Surrogate(history, Prior(space, history), space.context.device)
    (best,) = rank(history, space, 1, model=model, baseline=True)
    return CLEAR_LOSER * math.exp(float(model.log_rates([best])[0])) / space.context.worth(settings)


def combinations(space: Space) -> int:
    """Return an upper bound on the number of settings in ``space``."""
    lists = (values for name, values in space.values.items() if name != "batch_size")
    return math.prod(len(values) for values in lists) * len(space.global_batches)


def candidates(space: Space, around: Sequence[Settings], rng: np.random.Generator) -> list[Settings]:
    """Return distinct feasible settings near ``around``: one move away, two moves away, and random walks.

    Deterministic for a given state of ``rng``.
    """
    nearby = [[settings for _, settings in space.moves(centre)] for centre in around]
    pairs = (_walks(space, near, PAIRS // len(nearby), 1, rng) for near in nearby)
    walks = _walks(space, around, RANDOM, 4, rng)
    return list(dict.fromkeys(itertools.chain(around, *nearby, *pairs, walks)))


def _walks(
    space: Space, starts: Sequence[Settings], count: int, steps: int, rng: np.random.Generator
) -> Iterator[Settings]:
    for _ in range(count if starts else 0):
        settings = starts[int(rng.integers(len(starts)))]
        for _ in range(int(rng.integers(1, steps + 1))):
            settings = space.random_move(settings, lambda many: int(rng.integers(many))) or settings
        yield settings


class Forbidden:
    """Predicate over settings: what past trials rule out, by repeating one or failing the same way again.

    Attributes:
        seen: settings of past trials.
    """

    def __init__(self, history: Sequence[Trial]) -> None:
        self.seen = {o.settings for o in history}
        self._fine = [o.settings for o in history if o.outcome.measured]
        self._most = GROWTH * max((s.batch_size for s in self._fine), default=2**40)
        self._failed = [o for o in history if not o.outcome.measured]

    def __call__(self, settings: Settings) -> bool:
        """Return True if ``settings`` were tried already or would fail."""
        return settings in self.seen or self.fails(settings)

    def fails(self, settings: Settings) -> bool:
        """Return True if a failure already seen would come again, or the batch would grow too fast."""
        return settings.batch_size > self._most or any(self._repeats(failure, settings) for failure in self._failed)

    def _repeats(self, failure: Trial, settings: Settings) -> bool:
        failed, outcome = failure.settings, failure.outcome
        if isinstance(outcome, OutOfMemory):
            return self._needs_as_much(settings, failed, outcome.where)
        suspects = self._suspects(failed, outcome)
        return settings == failed or (bool(suspects) and _same(settings, failed, suspects))

    def _suspects(self, failed: Settings, outcome: Outcome) -> list[str]:
        """Return the knobs to blame: what a failure names or is about, else all whose value never worked."""
        if isinstance(outcome, NotApplied) and outcome.knob in BY_NAME:
            return [outcome.knob]
        if isinstance(outcome, WrongNumbers):
            return [name for name in CHANGES_NUMBERS if getattr(failed, name) != BY_NAME[name].neutral]
        return [name for name in KNOB_NAMES if not any(_same(s, failed, [name]) for s in self._fine)]

    def _needs_as_much(self, settings: Settings, failed: Settings, where: str) -> bool:
        """Return True if ``settings`` need at least the memory that ``failed`` did not get.

        On a device, and if no trial with as large a batch ever fitted, the batch is to blame. On the host,
        if such a batch did fit, only settings with as many processes and workers too are ruled out.
        """
        if where == "shm":
            return _queued(settings) >= _queued(failed)
        if not _same(settings, failed, CHANGES_MEMORY) or settings.batch_size < failed.batch_size:
            return False
        fitted = any(_same(s, failed, CHANGES_MEMORY) and s.batch_size >= failed.batch_size for s in self._fine)
        if where == "device" or not fitted:
            return True
        return settings.processes >= failed.processes and settings.num_workers >= failed.num_workers


def _same(first: Settings, second: Settings, names: Iterable[str]) -> bool:
    return all(getattr(first, name) == getattr(second, name) for name in names)


def _queued(settings: Settings) -> int:
    """Count the samples that loader workers hold in shared memory at once."""
    return settings.processes * settings.num_workers * (1 + (settings.prefetch_factor or 0)) * settings.batch_size
