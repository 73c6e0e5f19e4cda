"""One Optuna study for a whole tuning run: every proposal is a trial of it, so that `optuna-dashboard` opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autotune.core.knobs.knob import Count, Knob
from autotune.core.knobs.table import BY_NAME, KNOBS
from autotune.core.settings import Settings
from autotune.search.protocol import Observation, Proposal
from autotune.search.records import outcome_from_dict, outcome_to_dict

INFEASIBLE = 0.0
"""Value of a trial without a rate. Never FAIL: samplers forget failed trials and repeat them."""


def open_study(path: Path | None = None, name: str = "autotune") -> Study:
    """The study called ``name`` in the journal file ``path`` (in memory where None), made where there is none.

    Trials that a killed run left unfinished are closed as failed and never read again.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage: BaseStorage = InMemoryStorage() if path is None else JournalStorage(JournalFileBackend(str(path)))
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(
        storage=storage, study_name=name, direction="maximize", load_if_exists=True, sampler=sampler
    )
    for _ in study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        study.ask()  # takes one that waits: only running trials can be closed
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
    return Study(study)


class Study:
    """Writes proposals and outcomes to an Optuna study, and reads them back."""

    def __init__(self, study: optuna.Study) -> None:
        self.optuna = study
        self._running: dict[int, optuna.Trial] = {}

    def begin(self, proposal: Proposal, level: str) -> None:
        """Record that ``proposal`` starts now."""
        self.optuna.enqueue_trial(parameters(proposal.settings))
        self.adopt(self.optuna.ask(dict(distributions(proposal.settings))), proposal.number, level, proposal.stage)

    def adopt(self, trial: optuna.Trial, number: int, level: str, stage: str) -> None:
        """Take over ``trial``, whose parameters are settings already, as proposal ``number``."""
        trial.set_user_attr("level", level)
        trial.set_user_attr("stage", stage)
        self._running[number] = trial

    def finish(self, proposal: Proposal, observation: Observation) -> None:
        """Record what became of ``proposal``; one that never began (a planned repeat, say) begins and ends here."""
        if proposal.number not in self._running:
            self.begin(proposal, observation.level)
        trial = self._running.pop(proposal.number)
        trial.set_user_attr("outcome", outcome_to_dict(observation.outcome))
        trial.set_user_attr("kind", observation.outcome.kind)
        trial.set_user_attr("reason", observation.outcome.reason)
        self.optuna.tell(trial, observation.rate or INFEASIBLE)

    def record(self, observation: Observation, stage: str = "baseline") -> None:
        """Record a trial that no search proposed."""
        number = len(self.observations())
        self.finish(Proposal(observation.settings, stage, number, None, 0.0), observation)

    def observations(self) -> list[Observation]:
        """All finished trials, oldest first."""
        finished = self.optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [observation(trial) for trial in finished]


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
    """The inverse of `Study.finish`."""
    attributes = trial.user_attrs
    return Observation(Settings(**trial.params), outcome_from_dict(attributes["outcome"]), attributes["level"])
