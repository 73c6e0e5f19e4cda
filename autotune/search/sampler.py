"""The staged search as an ordinary Optuna sampler, for studies that drive themselves."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from autotune.core.settings import Settings
from autotune.core.space import Space
from autotune.search.staged import Planner
from autotune.search.study import distributions, observation, parameters


class StagedSampler(BaseSampler):
    """Proposes `Settings` of ``space`` as Optuna parameters, from outcomes that `Study.finish` recorded.

    ``StagedSampler.settings(study.ask())`` is the next thing to run. Once nothing promises a gain any more it keeps
    giving the best settings: a sampler cannot refuse.
    """

    def __init__(self, space: Space, *, start: Settings | None = None, seed: int = 0) -> None:
        """
        Args:
            space: feasible settings.
            start: the first settings to run; the baseline where None.
            seed: of the candidates' sampling.
        """
        self._start = start or space.context.baseline
        self._planner = Planner(space, self._start, seed)
        self._others = RandomSampler(seed=seed)
        self._proposed: tuple[int, Settings] | None = None

    @staticmethod
    def settings(trial: optuna.Trial) -> Settings:
        """The settings that ``trial`` stands for."""
        values: dict[str, Any] = {
            name: trial.suggest_int(name, kind.low, kind.high)
            if isinstance(kind, IntDistribution)
            else trial.suggest_categorical(name, kind.choices)
            for name, kind in distributions(Settings(**trial.relative_params)).items()
        }
        return Settings(**values)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The knobs of the settings chosen for ``trial``; conditional knobs appear where they apply."""
        return dict(distributions(self._choose(study, trial)))

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of those knobs."""
        return parameters(self._choose(study, trial))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Anything that is no knob is drawn at random."""
        return self._others.sample_independent(study, trial, param_name, param_distribution)

    def _choose(self, study: optuna.Study, trial: FrozenTrial) -> Settings:
        if self._proposed is None or self._proposed[0] != trial.number:
            finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            history = [observation(past) for past in finished]
            proposal = self._planner.propose(history)
            best = max(history, key=lambda o: o.rate or 0.0, default=None)
            fallback = self._start if best is None else best.settings
            self._proposed = (trial.number, fallback if proposal is None else proposal.settings)
        return self._proposed[1]
