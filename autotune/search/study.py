"""A run's Optuna study: every trial is one of it, so that `optuna-dashboard` opens its journal in the cache folder.

The journal must not end a run: incomplete lines are cut off, and a full disk only ends writing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.decoding import decoded
from autotune.errors import UsageError
from autotune.knobs.knob import Count
from autotune.knobs.settings import KNOBS, Settings
from autotune.profiles import places
from autotune.search.history import INFEASIBLE, Trial
from autotune.stats.outcome import KINDS, Completed

DETAIL_CHARACTERS = 2000
"""Characters of a log's tail kept in the study."""


class Study:
    """Writes trials to the Optuna study ``name`` in ``storage``, and reads them back."""

    def __init__(self, storage: BaseStorage, name: str = "autotune") -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._full = False
        self.optuna = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)

    def record(self, trial: Trial) -> None:
        """Add a finished trial, until the disk is full: the run continues, and ``--resume`` has what came before."""
        outcome = trial.outcome
        kinds = distributions(trial.settings)
        kept = {"kind": outcome.kind, **asdict(outcome), "detail": outcome.detail[-DETAIL_CHARACTERS:]}
        frozen = create_trial(
            params={name: getattr(trial.settings, name) for name in kinds},
            distributions=kinds,
            user_attrs={"level": trial.level, "outcome": kept},
            value=trial.rate or INFEASIBLE,
        )
        if isinstance(outcome, Completed) and frozen.datetime_complete is not None:
            frozen.datetime_start = frozen.datetime_complete - timedelta(seconds=outcome.seconds)
        if not self._full:
            try:
                self.optuna.add_trial(frozen)
            except OSError:
                self._full = True

    def trials(self) -> list[Trial]:
        """Return all finished trials, oldest first."""
        return _trials(self.optuna)


def study_of(profile: Path, words: Sequence[str], *, resume: bool) -> Study:
    """Open the study in the journal of ``profile``.

    Args:
        profile: where the run writes.
        words: what is tuned, on what machine, from which baseline. Other words are another study in the same journal.
        resume: go on with what the journal holds; else it is removed first.

    Raises:
        UsageError: the journal cannot be read, or is of another run.
    """
    journal = places.journal_of(profile)
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
    name = f"{profile.stem}-{digest[:12]}"
    try:
        if not resume:
            journal.unlink(missing_ok=True)
        journal.parent.mkdir(exist_ok=True)
        storage = journal_storage(journal)
        known = optuna.get_all_study_names(storage)
        study = Study(storage, name) if not known or name in known else None
    except Exception as error:
        raise UsageError(
            f"{journal}: the journal cannot be used ({getattr(error, 'strerror', None) or error}). Move it away, or"
            " make room; XDG_CACHE_HOME names another folder for caches"
        ) from error
    if study is None:
        raise UsageError(
            f"{journal}: is of another target, machine or baseline, or of other arguments, so there is nothing to"
            " resume. Without --resume a new one is started in its place"
        )
    return study


def journal_storage(path: Path) -> JournalStorage:
    """Open the journal file ``path``, without a last line that is not whole: its writer was killed, and the next entry
    would be added to it."""
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
    return JournalStorage(JournalFileBackend(str(path)))


def read_history(path: Path) -> list[Trial]:
    """Read the trials of the latest run in the journal file ``path``; empty if there is none.

    Raises:
        ValueError: it is no journal, or one of another version.
    """
    if not path.exists():
        return []
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        names = optuna.get_all_study_names(storage)
        return _trials(optuna.load_study(study_name=names[-1], storage=storage)) if names else []
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _trials(study: optuna.Study) -> list[Trial]:
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [_trial(frozen, finished[0]) for frozen in finished]


def _trial(frozen: FrozenTrial, first: FrozenTrial) -> Trial:
    kept, seconds = frozen.user_attrs, 0.0
    if frozen.datetime_complete is not None and first.datetime_complete is not None:
        seconds = (frozen.datetime_complete - first.datetime_complete).total_seconds()
    outcome = decoded(KINDS[kept["outcome"]["kind"]], kept["outcome"])
    return Trial(Settings(**frozen.params), outcome, kept["level"], seconds)


def distributions(settings: Settings) -> dict[str, BaseDistribution]:
    """Return Optuna's distribution of each knob that applies. Categories are all there are, offered here or not: Optuna
    wants the same ones in every trial of a study."""
    kinds = {knob.name: knob.kind for knob in KNOBS if knob.applies(settings)}
    return {
        name: IntDistribution(kind.least, kind.most)
        if isinstance(kind, Count)
        else CategoricalDistribution(kind.values)
        for name, kind in kinds.items()
    }
