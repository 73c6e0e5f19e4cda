"""The loop: search level by level, race, prove. Every collaborator is passed in."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from autotune.core.outcome import Completed
from autotune.core.settings import Settings
from autotune.core.space import Space
from autotune.search.protocol import Observation, Proposal, Search, far_apart
from autotune.tuning.proof import Finals
from autotune.tuning.state import Bench, Observer, Tuning

PASSES = ({"safe": 0.35, "amp": 0.2, "max": 0.2}, {"safe": 0.12, "amp": 0.07, "max": 0.06})
"""How the searching time is split; what a level leaves goes to the next. What a higher level finds helps the lower ones
too, so that each is searched once more."""
REST = {"safe": 1 / 3, "amp": 1 / 2, "max": 1.0}
"""What is left after that: each level's share of what those before it leave. Little is promised by then, so that the
search looks where it had given up: at what lost in other company."""
FIELD = 4
"""Most settings of a level in the race."""
CLOSE = 0.05
"""Estimates this near the best may be the true best..."""
NOISY = 1.5
"""...or within this many standard deviations of a trial: they join the race."""
RACE_SHARE = 0.15
"""Most of the budget kept back for the race."""
QUICK_SECONDS = 2.0
REPEAT_EVERY = 6
"""Trials of other settings between two of the baseline."""


class Tuner:
    """One tuning run.

    Args:
        bench: where settings are measured.
        spaces: feasible settings by level, lowest first.
        search: ``(space, start, history, thorough) -> Search`` for one level.
        finalists: ``(history, space, count) -> settings`` by posterior mean.
        clock: monotonic seconds.
        deadline: on that clock; the whole run ends by then.
        history: the baseline's trial, and those of an earlier run that is resumed.
    """

    def __init__(
        self,
        bench: Bench,
        spaces: Mapping[str, Space],
        search: Callable[[Space, Settings, Sequence[Observation], bool], Search],
        finalists: Callable[[Sequence[Observation], Space, int], Sequence[Settings]],
        clock: Callable[[], float],
        deadline: float,
        history: Sequence[Observation],
    ) -> None:
        self.bench, self.spaces, self.search, self.finalists = bench, spaces, search, finalists
        self.clock, self.deadline = clock, deadline
        self.observe: Observer = lambda **_: None
        first = next(iter(spaces.values()))
        self.tuning = Tuning(first.context.baseline)
        for observation in history:
            self.tuning.book(observation)
        self.started = clock()
        self.searched: set[str] = set()
        self.durations = [o.outcome.seconds for o in history if isinstance(o.outcome, Completed)]
        starts = [o.outcome.start_seconds for o in history if isinstance(o.outcome, Completed)]
        start, items = max(starts, default=0.0), items_per_sample(history)
        self.finals = Finals(bench, self.tuning, clock, deadline, start, items)

    def run(self, observe: Observer) -> Tuning:
        """Search, race and prove; ``observe`` is told about progress."""
        self.observe = self.finals.observe = observe
        share = 0.0
        for shares in PASSES:
            start = self.tuning.baseline
            for level, space in self.spaces.items():
                share += shares[level]
                start = self._search_level(level, space, start, share)
        start = self.tuning.baseline
        for level, space in self.spaces.items():
            used = min(1.0, self._used())
            start = self._search_level(level, space, start, used + (1 - used) * REST[level], thorough=True)
        fields = self._fields()
        self.tuning.chosen = self.finals.favourites(fields)
        self.tuning.chosen = self.finals.race(fields)
        self.finals.prove()
        return self.tuning

    # -- searching -------------------------------------------------------------------------------------------------

    def _search_level(
        self, level: str, space: Space, start: Settings, share: float, thorough: bool = False
    ) -> Settings:
        """Search one level until ``share`` of the searching time is over; returns the best settings known in it."""
        search = self.search(space, start, self.tuning.history, thorough)
        self.observe(stage=f"searching: {level}")
        while not self._over(share):
            proposal = self._repeat() or search.ask()
            if proposal is None:
                break
            self.observe(trying=proposal.settings)
            before = self.clock()
            outcome = self.bench.measure(proposal.settings, proposal.give_up_below, self.deadline)
            self.durations.append(self.clock() - before)
            search.tell(proposal, outcome)
            self._book(Observation(proposal.settings, outcome, level))
        self.searched.add(level)
        return next(iter(self.finalists(self.tuning.history, space, 1)), start)

    def _fields(self) -> dict[str, list[Settings]]:
        """What may be the best of each level and is not offered below it, best guess first."""
        tuning, fields = self.tuning, dict[str, list[Settings]]()
        for level, near in self._near().items():
            ranked = self.finalists(tuning.history, self.spaces[level], len(tuning.estimates)) if near else ()
            fields[level] = [settings for settings in ranked if settings in near][:FIELD]
        return {level: field for level, field in fields.items() if field}

    def _near(self) -> dict[str, set[Settings]]:
        """Of each level, what is not offered below it and may be as fast as the best known: anything, where the cores
        moved, since rates of trials are not alike then."""
        tuning, found = self.tuning, dict[str, set[Settings]]()
        moved = any(far_apart(tuning.history))
        margin = 1.0 if moved else max(CLOSE, NOISY * tuning.noise)
        below = {tuning.baseline}
        for level, space in self.spaces.items():
            known = {settings for settings in tuning.estimates if settings in space}
            bar = max(map(tuning.estimate, known), default=0.0) * (1 - margin)
            found[level] = {settings for settings in known - below if tuning.estimate(settings) >= bar}
            below |= known
        return found

    def _repeat(self) -> Proposal | None:
        """The baseline again: at once, which shows how far two trials of the same settings differ, and every few
        trials, which shows how the machine drifts. Where trials take long, later and more seldom."""
        history, own = self.tuning.history, self.tuning.baseline
        since = next((k for k, o in enumerate(reversed(history)) if o.settings == own), len(history))
        quick = self.durations[-1:] < [QUICK_SECONDS]
        due = since >= (REPEAT_EVERY if quick else 2 * REPEAT_EVERY) or (quick and len(history) == 1)
        return Proposal(own, "again", len(history), None, 0.0) if due else None

    def _over(self, share: float) -> bool:
        """True once another trial would take time that belongs to the next level or to the proof."""
        return self._used(statistics.median(self.durations or [0.0])) > share

    def _used(self, seconds: float = 0.0) -> float:
        """Share of the searching time that is over ``seconds`` from now."""
        searching = self.deadline - self.started - self._final_seconds()
        return (self.clock() + seconds - self.started) / searching if searching > 0 else math.inf

    def _final_seconds(self) -> float:
        """Time kept back for race and proof: of every level that may gain, by what is known or not known yet."""
        near, estimate = self._near(), self.tuning.estimate
        best = {level: max(found, key=estimate) for level, found in near.items() if found}
        rising = self.finals.rising(best, estimate)
        levels = sum(level in rising or level not in self.searched for level in self.spaces)
        pairs = [settings for level in rising if len(near[level]) > 1 for settings in list(near[level])[:2]]
        racing = self.finals.generation_seconds(pairs)
        affordable = racing <= RACE_SHARE * (self.deadline - self.started)
        return self.finals.proof_seconds(levels) + (racing if affordable else 0.0)

    def _book(self, observation: Observation) -> None:
        tuning = self.tuning
        tuning.book(observation)
        failures = [o for o in tuning.history if not o.outcome.measured]
        best = tuning.best if tuning.estimates else None
        self.observe(
            trials=len(tuning.history),
            baseline_rate=tuning.baseline_rate or None,
            best=best,
            best_rate=tuning.estimate(best) if best else None,
            failures=len(failures),
            last_failure=failures[-1].outcome.reason if failures else "",
        )


def items_per_sample(history: Sequence[Observation]) -> float:
    """Items that one sample holds on average (tokens, say), by the first measured trial; 1 where none is known."""
    for observation in history:
        outcome = observation.outcome
        if isinstance(outcome, Completed) and outcome.measurement is not None:
            blocks = outcome.measurement.blocks
            samples = sum(block.steps for block in blocks) * observation.settings.global_batch
            if samples:
                return sum(block.items for block in blocks) / samples
    return 1.0
