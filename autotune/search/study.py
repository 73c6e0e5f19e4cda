"""One Optuna study for a whole tuning run: every proposal is a trial of it, so that `optuna-dashboard` opens it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.trial import TrialState, create_trial

from autotune.knobs.knob import Count, Knob
from autotune.knobs.settings import Settings
from autotune.knobs.table import BY_NAME, KNOBS
from autotune.search.journal import Journal
from autotune.search.protocol import Observation, Proposal
from autotune.search.records import outcome_from_dict, outcome_to_dict
from autotune.stats.proof import Round

ROUNDS = "rounds"
"""The study's attribute that holds the proof."""
INFEASIBLE = 0.0
"""Value of a trial without a rate. Never FAIL: samplers ignore failed trials and repeat them."""


def open_study(path: Path | None = None, name: str = "autotune") -> Study:
    """The study called ``name`` in the journal file ``path`` (in memory if None), created if there is none.

    Trials that a killed run left unfinished are closed as failed and never read again.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage: BaseStorage = InMemoryStorage() if path is None else JournalStorage(Journal(path))
    study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
    return Study(study)


class Study:
    """Writes trials with their outcomes to an Optuna study, and reads them back."""

    def __init__(self, study: optuna.Study) -> None:
        self.optuna = study
        self._running: optuna.Trial | None = None

    def ask(self, sampler: BaseSampler, proposal: Proposal, level: str) -> None:
        """Begin the trial that ``sampler`` proposes as ``proposal``."""
        self.optuna.sampler = sampler
        self._running = self.optuna.ask(dict(distributions(proposal.settings)))
        self._running.set_user_attr("level", level)
        self._running.set_user_attr("stage", proposal.stage)

    def tell(self, stage: str, observation: Observation) -> None:
        """Record what became of the trial that was begun, or of one that no sampler proposed if none was."""
        trial, self._running = self._running, None
        if trial is None:
            self.record(observation, stage)
            return
        for name, value in _outcome_attributes(observation).items():
            trial.set_user_attr(name, value)
        self.optuna.tell(trial, observation.rate or INFEASIBLE)

    def record(self, observation: Observation, stage: str = "baseline") -> None:
        """Record a finished trial that no sampler proposed."""
        trial = create_trial(
            params=parameters(observation.settings),
            distributions=dict(distributions(observation.settings)),
            user_attrs={"level": observation.level, "stage": stage, **_outcome_attributes(observation)},
            value=observation.rate or INFEASIBLE,
        )
        self.optuna.add_trial(trial)

    def keep_rounds(self, rounds: Sequence[Round]) -> None:
        """Keep the rounds of the proof: reports show them as they came."""
        self.optuna.set_user_attr(ROUNDS, [[turn.generation, dict(turn.rates)] for turn in rounds])

    def observations(self) -> list[Observation]:
        """All finished trials, oldest first."""
        return observations(self.optuna)


def observations(study: optuna.Study) -> list[Observation]:
    """All finished trials of ``study``, oldest first."""
    return [observation(trial) for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))]


def _outcome_attributes(observation: Observation) -> dict[str, Any]:
    outcome = observation.outcome
    return {"outcome": outcome_to_dict(outcome), "kind": outcome.kind, "reason": outcome.reason}


def parameters(settings: Settings) -> dict[str, Any]:
    """``{knob: value}`` without the knobs that do not apply."""
    return {knob.name: getattr(settings, knob.name) for knob in KNOBS if knob.applies(settings)}


def distributions(settings: Settings) -> dict[str, IntDistribution | CategoricalDistribution]:
    """Optuna's distribution for each of `parameters`. Categories are all there are, offered here or not: Optuna wants
    the same ones in every trial of a study."""
    return {name: _distribution(BY_NAME[name]) for name in parameters(settings)}


def _distribution(knob: Knob) -> IntDistribution | CategoricalDistribution:
    if isinstance(knob.kind, Count):
        return IntDistribution(knob.kind.least, knob.kind.most)
    return CategoricalDistribution(knob.kind.values)


def observation(trial: optuna.trial.FrozenTrial) -> Observation:
    """The inverse of `Study.tell`."""
    attributes = trial.user_attrs
    return Observation(Settings(**trial.params), outcome_from_dict(attributes["outcome"]), attributes["level"])
