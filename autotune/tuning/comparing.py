"""The comparison: which knobs leave the user's own first steps as they are.

One trial of the baseline and one of the settings run the same first steps from the same state. If anything differs
that the knobs must keep, those that cause it are found by halving and are left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.knobs.knob import EXACT
from autotune.knobs.settings import BY_NAME, Settings
from autotune.knobs.space import Space
from autotune.knobs.task_facts import LeftOut
from autotune.probes.facts import Inventory
from autotune.profiles.clamp import one_process
from autotune.stats.outcome import Compared, Outcome
from autotune.tuning.state import RunState

Compare = Callable[[Settings], Outcome]
SCREENED = ("num_workers", "channels_last", "optimizer_impl")
"""Knobs that change what the user has built: they are compared before the search spends trials on them."""
REPEATS = 2
"""The user's own settings make their first steps once more, and so often in all if they differ."""
NOT_COMPARED = "your first steps could not be compared: {}"
DRAWS = "augmentations draw other random numbers in loader workers, of the same distribution"


@dataclass
class Comparison:
    """Compares settings with the baseline, and remembers what was found.

    Args:
        baseline: the user's settings.
        compare: runs one trial, of settings with one process.
        inventory: of this machine.

    Attributes:
        left_out: knobs that change training, with the value and the reason.
        draws: reading samples draws random numbers.
    """

    baseline: Settings
    compare: Compare
    inventory: Inventory
    left_out: list[LeftOut] = field(default_factory=list)
    draws: bool = False
    _same: set[Settings] = field(default_factory=set)
    _unshown: dict[int, str] = field(default_factory=dict)
    """By global batch, once the baseline was to repeat its first steps there: why it could not; else empty."""

    def screen(self, space: Space) -> None:
        """Try one other value of each knob that changes what the user has built."""
        self._run(self.baseline)
        for values in _other_values(space, self.baseline):
            self.settle(self.baseline.but(**values))

    def settle(self, settings: Settings) -> Settings:
        """Return ``settings`` without the knobs that change training, which are noted."""
        settings = self._without_known(settings)
        if self._unshown.get(settings.global_batch) and not self._touching(settings):
            return settings  # nothing would show a difference
        while (reason := self._difference(settings)) is not None:
            causes = self._causes(settings, reason)
            if not causes:
                break
            self.left_out += [LeftOut(knob, getattr(settings, knob), why) for knob, why in causes.items()]
            settings = self._without_known(settings)
        return settings

    def notes(self, chosen: Iterable[Settings]) -> tuple[str, ...]:
        """Return what the user should know of the ``chosen`` settings."""
        own = self.baseline.num_workers
        moved = any(each.num_workers != own and 0 in (each.num_workers, own) for each in chosen)
        return (DRAWS,) if self.draws and moved else ()

    def _without_known(self, settings: Settings) -> Settings:
        kept = {}
        for item in self.left_out:
            knob = BY_NAME[item.knob]
            of_the_loader = knob.applied == "loader" and knob.keeps == EXACT
            if of_the_loader or getattr(settings, item.knob) == item.value:
                kept[item.knob] = getattr(self.baseline, item.knob)
        return settings.but(**kept)

    def _causes(self, settings: Settings, reason: str) -> dict[str, str]:
        """Return the knobs that change training, and how: one that halving finds; nothing if none is found.

        If the baseline's first steps could not be repeated, these are all knobs that change what the user has built.
        """
        alone = self._alone(settings)
        reference = self._alone(self.baseline).but(batch_size=alone.batch_size)
        if settings.global_batch not in self._unshown:
            repeats, self._unshown[settings.global_batch] = self._repeat(reference)
            if not repeats:
                again = self._difference(settings)
                if again is None:
                    return {}  # no more than the baseline differs from itself
                reason = again
        if why := self._unshown[settings.global_batch]:
            return dict.fromkeys(self._touching(settings), why)
        names = [  # what follows from another knob cannot be put back alone
            name
            for name, (_mine, theirs) in alone.difference(reference).items()
            if alone.but(**{name: theirs}) != alone
        ]
        while len(names) > 1:
            half = names[: len(names) // 2]
            found = self._difference(reference.but(**{name: getattr(alone, name) for name in half}))
            names, reason = (half, found) if found is not None else (names[len(half) :], reason)
        return {names[0]: reason} if names else {}

    def _repeat(self, reference: Settings) -> tuple[bool, str]:
        """Let the user's settings make their first steps again: later comparisons allow what they differ by.

        Returns:
            True if they are the same bit for bit, and why they could not be made; empty if they could.
        """
        for _ in range(REPEATS):
            again = self._run(reference)
            if not isinstance(again, Compared):
                return False, NOT_COMPARED.format(again.reason)
            if not again.differences:
                return True, ""
        return False, ""

    def _touching(self, settings: Settings) -> list[str]:
        """Return the knobs of ``settings`` that change a model, an optimizer or a loader."""
        changed = [BY_NAME[name] for name in settings.difference(self.baseline)]
        return [knob.name for knob in changed if knob.on_model or knob.on_optimizer or knob.on_loader]

    def _difference(self, settings: Settings) -> str | None:
        """Return how the first steps of ``settings`` differ from the baseline's, or None."""
        settings = self._alone(settings)
        if settings in self._same:
            return None
        outcome = self._run(settings)
        if not isinstance(outcome, Compared):
            return outcome.reason
        if outcome.differences:
            return outcome.differences[0][1]
        self._same.add(settings)
        return None

    def _run(self, settings: Settings) -> Outcome:
        """Compare the first steps of ``settings``, as one process, with those of the baseline."""
        outcome = self.compare(self._alone(settings))
        self.draws = self.draws or (isinstance(outcome, Compared) and outcome.draws)
        return outcome

    def _alone(self, settings: Settings) -> Settings:
        """Return ``settings`` in one process: how processes share the work is shown by trials of its own."""
        if settings.processes == 1:
            return settings
        threads = self.baseline.threads if self.baseline.processes == 1 else settings.threads
        return one_process(settings, self.inventory).but(threads=threads, binding="none")


def compare_first_steps(state: RunState) -> dict[str, Settings]:
    """Return the chosen settings of each level without knobs that change training, and without levels left empty."""
    if not state.chosen:
        return state.chosen
    state.observe(stage="comparing first steps")
    chosen: dict[str, Settings] = {}
    for level, settings in state.chosen.items():
        settled = state.settle(settings)
        if settled not in (state.baseline, *chosen.values()):
            chosen[level] = settled
    return chosen


def _other_values(space: Space, baseline: Settings) -> list[Mapping[str, Any]]:
    """Return changes of the baseline that try another value of each screened knob; of workers, none and some."""
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    for name in SCREENED:
        others = [value for value in space.values[name] if value != getattr(baseline, name)]
        if others:
            first[name] = next(filter(None, others), others[0])
        if name == "num_workers" and 0 in others and first[name]:
            second[name] = 0
    return [values for values in (first, second) if values]
