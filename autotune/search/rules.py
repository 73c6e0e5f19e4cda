"""Forbids what past trials have shown: repeating one, or failing the same way again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autotune.knobs.knob import TRACKING
from autotune.knobs.settings import BY_NAME, KNOB_NAMES, KNOBS, Settings
from autotune.search.history import Trial
from autotune.stats.outcome import NotApplied, OutOfMemory, WrongNumbers

CHANGES_NUMBERS = tuple(knob.name for knob in KNOBS if knob.keeps == TRACKING or knob.name == "compile")
CHANGES_MEMORY = {
    where: tuple(knob.name for knob in KNOBS if where in knob.changes_memory) for where in ("host", "device", "shm")
}
GROWTH = 4
"""A batch may be at most this many times the largest that fitted: memory is climbed, not jumped at."""


class Forbidden:
    """Predicate over settings, made from all trials so far."""

    def __init__(self, history: Iterable[Trial]) -> None:
        trials = tuple(history)
        self._seen = {o.settings for o in trials}
        self._fine = [o.settings for o in trials if o.outcome.measured]
        self._most = GROWTH * max((s.batch_size for s in self._fine), default=2**40)
        self._failed = [o for o in trials if not o.outcome.measured]

    def __call__(self, settings: Settings) -> bool:
        """Return True if ``settings`` were tried already or would fail."""
        return settings in self._seen or self.fails(settings)

    def fails(self, settings: Settings) -> bool:
        """Return True if a failure already seen would come again, or memory would be jumped at."""
        return settings.batch_size > self._most or any(self._repeats(failure, settings) for failure in self._failed)

    def _repeats(self, failure: Trial, settings: Settings) -> bool:
        failed, outcome = failure.settings, failure.outcome
        if settings == failed:
            return True
        if isinstance(outcome, OutOfMemory):
            return self._needs_as_much(settings, failed, outcome.where)
        if isinstance(outcome, WrongNumbers):
            changed = [name for name in CHANGES_NUMBERS if getattr(failed, name) != BY_NAME[name].neutral]
            return bool(changed) and all(_same(settings, failed, name) for name in changed)
        if isinstance(outcome, NotApplied) and hasattr(failed, outcome.knob):
            return bool(getattr(settings, outcome.knob) == getattr(failed, outcome.knob))
        return self._shares_suspects(settings, failed)

    def _shares_suspects(self, settings: Settings, failed: Settings) -> bool:
        """Return True if ``settings`` have every value of ``failed`` that never worked: successes narrow the blame."""
        suspects = [name for name in KNOB_NAMES if not any(_same(s, failed, name) for s in self._fine)]
        return bool(suspects) and all(_same(settings, failed, name) for name in suspects)

    def _needs_as_much(self, settings: Settings, failed: Settings, where: str) -> bool:
        """Return True if ``settings`` need at least the memory that ``failed`` did not get.

        On a device, and wherever no trial with as large a batch ever fitted, the batch is to blame. On the host,
        if such a batch did fit, only settings with as many processes and workers too are ruled out.
        """
        kind = _kind(failed, where)
        if _kind(settings, where) != kind:
            return False
        if where == "shm":
            return _queued(settings) >= _queued(failed)
        if settings.batch_size < failed.batch_size:
            return False
        fitted = any(_kind(s, where) == kind and s.batch_size >= failed.batch_size for s in self._fine)
        if where == "device" or not fitted:
            return True
        return settings.processes >= failed.processes and settings.num_workers >= failed.num_workers


def _same(first: Settings, second: Settings, name: str) -> bool:
    return bool(getattr(first, name) == getattr(second, name))


def _kind(settings: Settings, where: str) -> tuple[Any, ...]:
    """Return the values that change how much of this memory a batch takes."""
    return tuple(getattr(settings, name) for name in CHANGES_MEMORY[where])


def _queued(settings: Settings) -> int:
    """Count the samples that loader workers hold in shared memory at once."""
    return settings.processes * settings.num_workers * (1 + (settings.prefetch_factor or 0)) * settings.batch_size
