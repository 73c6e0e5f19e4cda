"""The staged search as an Optuna sampler, and the search of one level that asks it through the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.search.protocol import Observation, Proposal
from autotune.search.staged import Planner
from autotune.search.study import Study, distributions, observations, parameters
from autotune.stats.outcome import Outcome


class StagedSampler(BaseSampler):
    """Proposes `Settings` as Optuna parameters, from the outcomes that `Study` recorded.

    Args:
        space: feasible settings.
        start: the first settings to run.
        seed: of the candidates' sampling.
        thorough: look further if expected gains are small, instead of stopping.
        known: settings to try first.
    """

    def __init__(
        self,
        space: Space,
        start: Settings,
        *,
        seed: int = 0,
        thorough: bool = False,
        known: Sequence[Settings] = (),
    ) -> None:
        self._start = start
        self._planner = Planner(space, start, seed, thorough, known)
        self._others = RandomSampler(seed=seed)
        self._planned: tuple[int, Proposal | None] | None = None

    def proposal(self, study: optuna.Study) -> Proposal | None:
        """The next trial of ``study``; None if no settings are worth one. The same until a trial ends."""
        history = observations(study)
        if self._planned is None or self._planned[0] != len(history):
            self._planned = len(history), self._planner.propose(history)
        return self._planned[1]

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The knobs of the proposed settings; conditional knobs appear only if they apply."""
        return dict(distributions(self._settings(study)))

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of those knobs."""
        return parameters(self._settings(study))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Anything that is no knob is drawn at random."""
        return self._others.sample_independent(study, trial, param_name, param_distribution)

    def _settings(self, study: optuna.Study) -> Settings:
        """A sampler must answer: without a proposal it repeats the start."""
        proposal = self.proposal(study)
        return proposal.settings if proposal else self._start


class StagedSearch:
    """One level's search, through ``study.ask()`` and ``study.tell()``. See `autotune.search.protocol.Search`.

    What it proposes follows from space, recorded trials and seed alone, so that resuming is exact.

    Args:
        study: where trials are recorded; those of other levels count too.
        space: feasible settings of this level.
        start: the baseline, or the best of the level below.
        thorough: look further if expected gains are small, instead of stopping.
        seed: of the candidates' sampling.
        known: settings to try first, by level.
    """

    def __init__(
        self,
        study: Study,
        space: Space,
        start: Settings,
        thorough: bool = False,
        *,
        seed: int = 0,
        known: Mapping[str, Sequence[Settings]] = MappingProxyType({}),
    ) -> None:
        self.study, self._level = study, space.level
        own = known.get(space.level, ())
        self._sampler = StagedSampler(space, start, seed=seed, thorough=thorough, known=own)

    def ask(self) -> Proposal | None:
        """See `Search.ask`."""
        proposal = self._sampler.proposal(self.study.optuna)
        if proposal is not None:
            self.study.ask(self._sampler, proposal, self._level)
        return proposal

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        """See `Search.tell`. Repeats of the baseline may be told without being asked for."""
        self.study.tell(proposal.stage, Observation(proposal.settings, outcome, self._level))
