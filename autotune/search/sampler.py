"""The search of one level as an Optuna study: a sampler proposes, the run measures, the study is told.

The study is in memory, because every parameter of an ask would cost a write to the disk (0.13 s a trial); finished
trials are kept by `autotune.search.study`. Its parameters are the knobs that may move, with the values offered, and the
global batch in place of the batch of a process. The project's own search is one sampler among others.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.errors import UsageError, UserCodeError, did_you_mean
from autotune.knobs.settings import BY_NAME, KNOBS, Settings
from autotune.knobs.space import GLOBAL_BATCH, Space
from autotune.search.history import INFEASIBLE, Trial
from autotune.search.planner import SMALL, Forbidden, Planner, Proposal, clear_loser

RECORD, REASON = "trial", "reason"
"""Attributes of the study's trials: the record of what was measured, and why a proposal was not."""
NewSampler = Callable[..., BaseSampler]
NAMED: dict[str, NewSampler] = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}


class NothingLeft(Exception):
    """A sampler expects no settings to gain enough, or knows no new ones: the search of this level is over."""


class PlannerSampler(BaseSampler):
    """The project's own search: a `Planner` proposes all knobs together from the records in the study.

    Raises:
        NothingLeft: from `sample_relative`.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the distributions of all knobs that may move: they are proposed together."""
        return distributions(self._planner.space)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of the next settings."""
        settings = self._planner.propose(records(study))
        if settings is None:
            raise NothingLeft
        return parameters(settings, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return any value: this knob does not apply beside one that is asked for later."""
        return choices(param_distribution)[0]


class LevelSearch:
    """The search of one level. What it proposes is feasible, new, and fails in no way that was seen.

    Args:
        space: feasible settings of the level.
        start: the baseline, or the best of the level below; the first trial if it was never tried.
        history: the run's trials of all levels so far.
        sampler: who proposes.
    """

    def __init__(self, space: Space, start: Settings, history: Sequence[Trial], sampler: BaseSampler) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._start = space, start
        self._distributions = distributions(space)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._asked: tuple[optuna.Trial, Settings] | None = None
        for trial in history:
            self.tell(trial)

    def ask(self) -> Proposal | None:
        """Return the next trial; None if the search of this level is over.

        Raises:
            UserCodeError: the user's sampler failed.
        """
        history = records(self._study)
        if all(trial.settings != self._start for trial in history):
            return Proposal(self._start)
        if not any(trial.rate and trial.settings in self._space for trial in history):
            return None
        try:
            asked = self._study.ask()
            wanted = settings_of(asked, self._space)
        except NothingLeft:
            return None
        except Exception as error:
            raise UserCodeError(f"the sampler failed: {error!r}", traceback.format_exc()) from error
        avoid = Forbidden(history)
        chosen: Settings | None = wanted
        if reason := self._why_not(wanted, avoid):
            asked.set_user_attr(REASON, reason)
            self._study.tell(asked, _known(history, wanted))
            chosen = next((near for near in nearest(self._space, wanted) if not avoid(near)), None)
        else:
            self._asked = asked, wanted
        return None if chosen is None else Proposal(chosen, clear_loser(history, self._space, chosen))

    def tell(self, trial: Trial) -> None:
        """Add a finished trial: what was proposed last, or another."""
        asked, self._asked = self._asked, None
        if asked is not None and asked[1] == trial.settings:
            asked[0].set_user_attr(RECORD, trial)
            self._study.tell(asked[0], trial.rate or INFEASIBLE)
            return
        values = parameters(trial.settings, self._distributions)
        known = {name: self._distributions[name] for name in values}
        attributes = {RECORD: trial}
        value = trial.rate or INFEASIBLE
        self._study.add_trial(create_trial(params=values, distributions=known, user_attrs=attributes, value=value))

    def _why_not(self, settings: Settings, avoid: Forbidden) -> str | None:
        """Return why proposed settings are not measured; None if they are."""
        if settings in avoid.seen:
            return "tried before"
        return self._space.why_not(settings) or ("would fail as an earlier trial" if avoid(settings) else None)


def records(study: optuna.Study) -> list[Trial]:
    """Return what was measured, oldest first."""
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [trial.user_attrs[RECORD] for trial in finished if RECORD in trial.user_attrs]


def _known(history: Sequence[Trial], settings: Settings) -> float:
    """Return the mean rate of ``settings``; `INFEASIBLE` if they were not measured, or failed."""
    rates = [trial.rate for trial in history if trial.settings == settings and trial.rate]
    return sum(rates) / len(rates) if rates else INFEASIBLE


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the study's parameters: knobs with more than one value in ``space``, and its global batches."""
    values = {knob.name: space.values[knob.name] for knob in KNOBS if knob.name != "batch_size"}
    values[GLOBAL_BATCH] = space.global_batches
    return {name: CategoricalDistribution(several) for name, several in values.items() if len(several) > 1}


def choices(distribution: BaseDistribution) -> tuple[Any, ...]:
    """Return the values of a parameter."""
    assert isinstance(distribution, CategoricalDistribution)
    return distribution.choices


def parameters(settings: Settings, known: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Return the values of the parameters ``known``, as far as they apply and are offered."""
    found: dict[str, Any] = {knob.name: getattr(settings, knob.name) for knob in KNOBS if knob.applies(settings)}
    found[GLOBAL_BATCH] = settings.global_batch
    offered = ((name, kind) for name, kind in known.items() if name in found)
    return {name: found[name] for name, kind in offered if found[name] in choices(kind)}


def settings_of(trial: optuna.Trial, space: Space) -> Settings:
    """Return the settings that ``trial`` suggests, feasible or not. A knob is asked for only if it applies beside those
    before it."""
    known = {name: choices(kind) for name, kind in distributions(space).items()}
    chosen = {name: values[0] for name, values in space.values.items() if len(values) == 1 and name != "batch_size"}
    for name in (name for name in known if name in BY_NAME):
        if BY_NAME[name].applies(Settings(**chosen)):
            chosen[name] = trial.suggest_categorical(name, known[name])
    batch = space.global_batches[0]
    if GLOBAL_BATCH in known:
        batch = int(trial.suggest_categorical(GLOBAL_BATCH, known[GLOBAL_BATCH]))
    return Settings(**chosen, batch_size=max(1, batch // chosen["processes"]))


def nearest(space: Space, wanted: Settings) -> Iterator[Settings]:
    """Yield feasible settings, those fewest decisions from ``wanted`` first, then from the baseline; about `SMALL`."""
    queue = [wanted, space.context.baseline]
    seen = set(queue)
    for settings in queue:  # grows meanwhile
        if settings in space:
            yield settings
        if len(queue) < SMALL:
            found = [moved for _, moved in space.moves(settings) if moved not in seen]
            seen.update(found)
            queue += dict.fromkeys(found)


def searches_of(wanted: str | NewSampler | None, seed: int) -> Callable[..., LevelSearch]:
    """Return what begins the search of a level.

    Args:
        wanted: ``tpe``, ``random``, ``module:Class``, or what makes a sampler: called for each search, with a ``seed``
            if it takes one. None is the project's own.
        seed: of the run.

    Raises:
        UsageError: there is no such sampler.
    """
    make = loaded(wanted) if isinstance(wanted, str) else wanted
    seeded = make is not None and "seed" in inspect.signature(make).parameters
    seeds = itertools.count(seed)

    def begin(space: Space, start: Settings, thorough: bool, history: Sequence[Trial]) -> LevelSearch:
        if make is None:
            return LevelSearch(space, start, history, PlannerSampler(Planner(space, start, thorough, seed=seed)))
        return LevelSearch(space, start, history, make(seed=next(seeds) % 2**32) if seeded else make())

    return begin


def loaded(name: str) -> NewSampler:
    """Return the sampler of this name; modules in the working folder count. Raise `UsageError` if there is none."""
    if name in NAMED:
        return NAMED[name]
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, type):
            inspect.signature(found).bind()  # nobody gives it arguments
    except Exception as error:  # whatever the user's module raises
        advice = did_you_mean(name, NAMED)
        raise UsageError(f"--sampler {name}: {error}. Write {', '.join(NAMED)} or module:Class{advice}") from error
    if not (isinstance(found, type) and issubclass(found, BaseSampler)) or inspect.isabstract(found):
        raise UsageError(f"--sampler {name}: is no class that implements Optuna's BaseSampler")
    return found
