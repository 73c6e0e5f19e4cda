"""The loop: search level by level, race, prove. Every collaborator is passed in."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from autotune.core.decide import BASELINE, typical_rate, undecided
from autotune.core.outcome import Completed
from autotune.core.proof import Round
from autotune.core.settings import Settings
from autotune.core.space import Space
from autotune.search.protocol import Observation, Proposal, Search
from autotune.tuning import Bench, Observer, Tuning

SEARCH_SHARE = {"safe": 0.5, "amp": 0.3, "max": 0.2}
"""How the searching time is split; what a level leaves goes to the next."""
GENERATIONS = (5, 4)
"""Generations of fresh processes at the first look and at the one extension."""
ROUNDS = 2
"""Rounds within each generation."""
BLOCK_SECONDS = 0.3
CLOSE = 0.95
"""A finalist within this share of the best estimate may be the true best: it joins the race."""
EQUAL = 0.99
"""Estimates this near are the same within noise."""
FINALISTS = 3
REPEAT_EVERY = 6
"""Trials of other settings between two of the baseline."""
LEAST_GENERATIONS = 2
LEAST_CONTENDERS = 3
MOST_GAIN = 3.0
SLOW_STEP_SECONDS = 1.0
WARMUP_SECONDS, WARMUP_STEPS = 0.8, 4
"""What a contender's warm-up usually takes, whichever is longer."""
PROOF_SHARE = 0.55
"""Most of the budget that the proof may reserve."""


class Tuner:
    """One tuning run.

    Args:
        bench: where settings are measured.
        spaces: feasible settings by level, lowest first.
        search: ``(space, start, history) -> Search`` for one level.
        finalists: ``(history, space, count) -> settings`` by posterior mean.
        clock: monotonic seconds.
        deadline: on that clock; the whole run ends by then.
        history: the baseline's trial, and those of an earlier run that is resumed.
    """

    def __init__(
        self,
        bench: Bench,
        spaces: Mapping[str, Space],
        search: Callable[[Space, Settings, Sequence[Observation]], Search],
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
        self.durations = [o.outcome.seconds for o in history if isinstance(o.outcome, Completed)]
        starts = [o.outcome.start_seconds for o in history if isinstance(o.outcome, Completed)]
        self.start_seconds = max(starts, default=0.0)
        self.items_per_sample = items_per_sample(history)
        self.generation = 0

    def run(self, observe: Observer) -> Tuning:
        """Search, race and prove; ``observe`` is told about progress."""
        self.observe = observe
        start, share = self.tuning.baseline, 0.0
        for level, space in self.spaces.items():
            share += SEARCH_SHARE[level]
            start = self._search_level(level, space, start, share)
        self._race()
        self._prove()
        return self.tuning

    # -- searching -------------------------------------------------------------------------------------------------

    def _search_level(self, level: str, space: Space, start: Settings, share: float) -> Settings:
        """Search one level until ``share`` of the searching time is over; returns the best settings known in it."""
        search = self.search(space, start, self.tuning.history)
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
        best = self._simplest(self.finalists(self.tuning.history, space, FINALISTS), start)
        if self._estimate(best) <= max(self._estimate(start), self._estimate(self.tuning.baseline)):
            return start
        self.tuning.chosen[level] = best
        return best

    def _simplest(self, finalists: Sequence[Settings], start: Settings) -> Settings:
        """The best finalist, or one as fast that changes fewer knobs: what does not matter stays as the user has it."""
        best = next(iter(finalists), start)
        equal = [s for s in finalists if self._estimate(s) >= EQUAL * self._estimate(best)]
        return min(equal, key=lambda s: len(s.difference(self.tuning.baseline)), default=best)

    def _repeat(self) -> Proposal | None:
        """The baseline again, every few trials: its repeats show how the machine drifts."""
        history, own = self.tuning.history, self.tuning.baseline
        since = next((k for k, o in enumerate(reversed(history)) if o.settings == own), len(history))
        return Proposal(own, "again", len(history), None, 0.0) if since >= REPEAT_EVERY else None

    def _over(self, share: float) -> bool:
        """True once another trial would take time that belongs to the next level or to the proof."""
        searching = self.deadline - self.started - self._proof_seconds()
        return self.clock() + statistics.median(self.durations or [0.0]) > self.started + searching * share

    def _book(self, observation: Observation) -> None:
        tuning = self.tuning
        tuning.book(observation)
        failures = [o for o in tuning.history if not o.outcome.measured]
        best = self._best() if tuning.estimates else None
        self.observe(
            trials=len(tuning.history),
            baseline_rate=tuning.baseline_rate or None,
            best=best,
            best_rate=self._estimate(best) if best else None,
            failures=len(failures),
            last_failure=failures[-1].outcome.reason if failures else "",
        )

    def _estimate(self, settings: Settings) -> float:
        return self.tuning.estimates.get(settings, 0.0)

    # -- race and proof --------------------------------------------------------------------------------------------

    def _race(self) -> None:
        """One generation between near-equal finalists. What it measures chooses, and therefore proves nothing."""
        tuning = self.tuning
        entries: dict[str, Settings] = {}
        for level in tuning.chosen:
            near = [s for s in self.finalists(tuning.history, self.spaces[level], FINALISTS) if self._near(s, level)]
            if len(near) > 1:
                entries |= {f"{level} {number}": settings for number, settings in enumerate(near)}
        time_left = self.deadline - self.clock() - self._proof_seconds()
        if not entries or time_left < self._generation_seconds(entries.values()):
            return
        self.observe(stage="race between finalists", trying=None)
        rounds = self._generation(0, entries)
        for level in tuning.chosen:
            names = [name for name in entries if name.startswith(f"{level} ") and typical_rate(rounds, name) > 0]
            if names:
                tuning.chosen[level] = entries[max(names, key=lambda name: typical_rate(rounds, name))]

    def _near(self, settings: Settings, level: str) -> bool:
        return self._estimate(settings) >= CLOSE * self._estimate(self.tuning.chosen[level])

    def _prove(self) -> None:
        """Interleaved generations of the baseline and every level's contender: a first look, at most one extension."""
        tuning = self.tuning
        if not tuning.chosen:
            return
        contenders = self._affordable({BASELINE: tuning.baseline, **tuning.chosen})
        self.observe(stage="proof", trying=None)
        self._generations(contenders, GENERATIONS[0])
        if undecided(tuning.chosen, tuning.rounds):
            self._generations(contenders, GENERATIONS[1])

    def _affordable(self, contenders: dict[str, Settings]) -> dict[str, Settings]:
        """Without the highest levels where two generations of them would not fit: one alone proves nothing.

        One slow trial makes the estimate too dark, so two levels always start; what they really take decides then.
        """
        while len(contenders) > LEAST_CONTENDERS:
            if self.clock() + LEAST_GENERATIONS * self._generation_seconds(contenders.values()) <= self.deadline:
                break
            contenders.popitem()
        return contenders

    def _generations(self, contenders: dict[str, Settings], count: int) -> None:
        """Up to ``count`` generations; where the time left is short for all, the highest levels stay out first."""
        each = self._generation_seconds(contenders.values()) / len(contenders)
        for _ in range(count):
            before = self.clock()
            while len(contenders) > 2 and before + each * len(contenders) > self.deadline:
                contenders.popitem()
            if before + each * len(contenders) > self.deadline:
                return
            self.generation += 1
            self.tuning.rounds += self._generation(self.generation, contenders)
            each = (self.clock() - before) / len(contenders)

    def _generation(self, number: int, contenders: Mapping[str, Settings]) -> list[Round]:
        """Start all contenders afresh and let them take blocks in turn."""
        rounds: list[Round] = []
        with self.bench.contest(contenders, self.deadline) as contest:
            for _ in range(self._rounds()):
                rounds.append(Round(number, contest.round(BLOCK_SECONDS)))
                done = len(self.tuning.rounds) + len(rounds)
                self.observe(rounds=dict.fromkeys(rounds[-1].rates, done))
        return rounds

    def _generation_seconds(self, contenders: Iterable[Settings]) -> float:
        """Expected duration of one generation: every contender starts, warms up, and takes its blocks."""
        return sum(self._resident_seconds(settings) for settings in contenders)

    def _resident_seconds(self, settings: Settings) -> float:
        step = self._step_seconds(settings)
        warm = max(WARMUP_SECONDS, WARMUP_STEPS * step)
        return self.start_seconds + warm + self._rounds() * max(BLOCK_SECONDS, 1.5 * step)

    def _step_seconds(self, settings: Settings) -> float:
        """Expected seconds of one optimizer step. A neighbour may have slowed a single trial many times over, so the
        best rate known bounds it."""
        best = self._estimate(self._best())
        rate = max(self._estimate(settings), best / MOST_GAIN)
        return self._seconds(settings, rate)

    def _seconds(self, settings: Settings, rate: float) -> float:
        """One optimizer step at ``rate`` items per second."""
        return settings.global_batch * self.items_per_sample / rate if rate else 0.0

    def _rounds(self) -> int:
        """Rounds within a generation: fewer where a step alone takes long."""
        own = self.tuning.baseline
        return 1 if self._seconds(own, self._estimate(own)) > SLOW_STEP_SECONDS else ROUNDS

    def _proof_seconds(self) -> float:
        """Time kept back for the first look at what is known now, at most `PROOF_SHARE` of the whole run."""
        likely = [self.tuning.baseline] + [self._best()] * len(self.spaces)
        wanted = GENERATIONS[0] * self._generation_seconds(likely)
        return min(wanted, PROOF_SHARE * (self.deadline - self.started))

    def _best(self) -> Settings:
        return max(self.tuning.estimates, key=self._estimate, default=self.tuning.baseline)


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
