"""Baseline, a few designed trials, coordinate moves, then a small model: the project's own search method."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.core.outcome import Outcome
from autotune.core.settings import Settings
from autotune.core.space import Space
from autotune.search.candidates import SMALL, candidates, combinations
from autotune.search.prior import Prior, trial_seconds
from autotune.search.protocol import Observation, Proposal
from autotune.search.rules import Forbidden
from autotune.search.study import Study
from autotune.search.surrogate import Surrogate

WORTHWHILE = 0.005
"""Stop where no setting promises more than this share of the rate."""
CLEAR_LOSER = 0.7
"""A trial below this share of the best rate may end early."""
DESIGNED = 2
CLIMB = 12


class StagedSearch:
    """One level's search. What it proposes follows from space, history and seed alone, so that resuming is exact."""

    def __init__(
        self,
        space: Space,
        study: Study,
        *,
        start: Settings,
        history: Sequence[Observation] = (),
        seed: int = 0,
        noise: float = 0.03,
    ) -> None:
        """
        Args:
            space: feasible settings of this level.
            study: where trials are recorded.
            start: the baseline, or the best of the level below.
            history: all observations so far, those of lower levels too.
            seed: of the candidates' sampling.
            noise: relative standard deviation from trial to trial of the same settings.
        """
        self._planner = Planner(space, start, seed, noise)
        self._study = study
        self._level = space.level
        self.history = list(history)

    def ask(self) -> Proposal | None:
        """See `Search.ask`."""
        proposal = self._planner.propose(self.history)
        if proposal is not None:
            self._study.begin(proposal, self._level)
        return proposal

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        """See `Search.tell`. Planned repeats (stage ``again``) may be told without having been asked for."""
        observation = Observation(proposal.settings, outcome, self._level)
        self._study.finish(proposal, observation)
        self.history.append(observation)


class Planner:
    """The pure half: history in, next proposal out."""

    def __init__(self, space: Space, start: Settings, seed: int, noise: float) -> None:
        self._space = space
        self._start = start
        self._seed = seed
        self._noise = noise
        self._device = space.context.task.device
        self._all = tuple(space.enumerate()) if combinations(space) <= SMALL else None

    def propose(self, history: Sequence[Observation]) -> Proposal | None:
        """The next trial after ``history``; None where nothing is worth one."""
        number = len(history)
        seen = {observation.settings for observation in history}
        if self._start not in seen:
            return Proposal(self._start, "baseline", number, None, 0.0)
        rates = [o.rate for o in history if o.rate]
        if not rates:
            return None
        expected = Prior(self._space, history)
        model = Surrogate(history, expected, self._noise, self._device)
        best = finalists(history, self._space, 1, model=model, baseline=True)[0]
        rate = math.exp(float(model.log_rates([best])[0]))
        forbidden = Forbidden(history)

        def fresh(settings: Settings) -> bool:
            return settings not in seen and not forbidden(settings)

        if self._tried(history) < DESIGNED:
            jump = self._climb(best, model, forbidden)
            if fresh(jump):
                gain = float(model.gains([jump], best).expected_improvement()[0])
                return Proposal(jump, "design", number, gain, CLEAR_LOSER * rate)
        pool = [s for s in self._pool(history, model, number) if fresh(s)]
        if not pool:
            return None
        improvement = model.gains(pool, best).expected_improvement()
        if improvement.max() < WORTHWHILE:
            return None
        costs = np.array([trial_seconds(s, rate) for s in pool])
        index = int(np.argmax(improvement / costs))
        near = {s for _, s in self._space.moves(best, far=True)}
        stage = "moves" if pool[index] in near else "model"
        return Proposal(pool[index], stage, number, float(improvement[index]), CLEAR_LOSER * rate)

    def _climb(self, settings: Settings, model: Surrogate, forbidden: Forbidden) -> Settings:
        """Where the expected rate is highest, one move at a time: a jump that combines all moves that promise."""
        top = float(model.log_rates([settings])[0])
        for _ in range(CLIMB):
            moves = [s for _, s in self._space.moves(settings, far=True) if not forbidden(s)]
            if not moves:
                break
            rates = model.log_rates(moves)
            if rates.max() <= top + 1e-9:
                break
            settings, top = moves[int(rates.argmax())], float(rates.max())
        return settings

    def _tried(self, history: Sequence[Observation]) -> int:
        """Trials of this level's own so far."""
        return sum(observation.level == self._space.level for observation in history)

    def _pool(self, history: Sequence[Observation], model: Surrogate, number: int) -> Sequence[Settings]:
        if self._all is not None:
            return self._all
        rng = np.random.default_rng((self._seed, number))
        centres = finalists(history, self._space, 3, model=model, baseline=True)
        return candidates(self._space, centres, rng)


def finalists(
    history: Sequence[Observation],
    space: Space,
    count: int,
    *,
    noise: float = 0.03,
    model: Surrogate | None = None,
    baseline: bool = False,
) -> tuple[Settings, ...]:
    """The best distinct settings measured so far, best first, by posterior mean (shrunk for noise).

    Args:
        history: all observations so far.
        space: only its settings count.
        count: how many at most.
        noise: relative standard deviation from trial to trial of the same settings.
        model: a posterior of ``history``, where one is at hand.
        baseline: whether the space's baseline may be among them.
    """
    settings = list(dict.fromkeys(o.settings for o in history if o.rate and o.settings in space))
    if not baseline:
        settings = [s for s in settings if s != space.context.baseline]
    if not settings:
        return ()
    model = model or Surrogate(history, Prior(space, history), noise, space.context.task.device)
    order = np.argsort(-model.log_rates(settings), kind="stable")
    return tuple(settings[int(k)] for k in order[:count])
