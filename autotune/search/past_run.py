"""A run's history out of its journal."""

from __future__ import annotations

from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from autotune.search.history import History, TriedSettings
from autotune.search.study import ROUNDS, observation
from autotune.stats.outcome import Completed
from autotune.stats.proof import Round


def read_history(path: Path) -> History:
    """The latest run in the journal file ``path``; empty where there is none.

    Raises:
        ValueError: it is no journal, or one of another version.
    """
    if not path.exists():
        return History()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        studies = optuna.get_all_study_summaries(storage := JournalStorage(JournalFileBackend(str(path))))
        if not studies:
            return History()
        latest = max(studies, key=lambda each: each._study_id)
        study = optuna.load_study(study_name=latest.study_name, storage=storage)
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        rounds = [Round(generation, rates) for generation, rates in study.user_attrs.get(ROUNDS, ())]
        return History(tuple(_tried(trial, trials[0]) for trial in trials), tuple(rounds))
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _tried(trial: FrozenTrial, first: FrozenTrial) -> TriedSettings:
    seen = observation(trial)
    seconds = 0.0
    if trial.datetime_complete is not None and first.datetime_complete is not None:
        seconds = (trial.datetime_complete - first.datetime_complete).total_seconds()
    return TriedSettings(
        settings=seen.settings,
        level=seen.level,
        stage=str(trial.user_attrs.get("stage", "")),
        seconds=seconds,
        measurement=seen.outcome.measurement if isinstance(seen.outcome, Completed) else None,
        kind=seen.outcome.kind,
        reason=seen.outcome.reason,
    )
