"""Race and proof: contenders started side by side, which take blocks in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from autotune.core.decide import BASELINE, still_open, typical_rate
from autotune.core.outcome import Completed
from autotune.core.proof import LOOKS, PRIOR_SPREAD, Round, round_variance
from autotune.core.settings import Settings
from autotune.tuning.state import Bench, Observer, Tuning

ROUNDS, MOST_ROUNDS = 2, 6
"""Rounds within a generation: at least, and where their scatter makes more of them worth the time."""
BLOCK_SECONDS = 0.3
HEATS = 2
"""Generations of a race; the slower half leaves after each."""
EQUAL = 0.99
"""Rates this near are the same within noise."""
LUCK = 0.5
"""Standard deviations of a trial by which the fastest of a few seems faster than it is."""
LEAST_GENERATIONS = 2
LEAST_CONTENDERS = 3
MOST_GAIN = 3.0
SLOW_STEP_SECONDS = 1.0
WARMUP_SECONDS, WARMUP_STEPS = 0.8, 4
"""What a contender's warm-up usually takes, whichever is longer."""
PROOF_SHARE, LATER_SHARE = 0.55, 0.5
"""Most of the budget that the proof may reserve for its first look, and for later ones; what the search leaves pays for
more."""
SLACK = 1.15
"""Generations take longer than expected rather than less."""


class Finals:
    """What comes after the search.

    Args:
        bench: where contenders run.
        tuning: what has been found; rounds of the proof are added to it.
        clock: monotonic seconds.
        deadline: on that clock.
        start_seconds: what starting a contender takes.
        items_per_sample: items of one sample, on average.
    """

    def __init__(
        self,
        bench: Bench,
        tuning: Tuning,
        clock: Callable[[], float],
        deadline: float,
        start_seconds: float,
        items_per_sample: float,
    ) -> None:
        self.bench, self.tuning, self.clock, self.deadline = bench, tuning, clock, deadline
        self.start_seconds, self.items_per_sample = start_seconds, items_per_sample
        self.observe: Observer = lambda **_: None
        self.started = clock()
        self.generation = 0
        self.raced: list[Round] = []
        self.slowness = 1.0
        """How many times as long as expected the last contenders took to start and warm up."""

    # -- race ------------------------------------------------------------------------------------------------------

    def favourites(self, fields: Mapping[str, Sequence[Settings]]) -> dict[str, Settings]:
        """Each level's best by its trials alone, or the simplest of those as fast."""
        rate = self.tuning.estimate
        return self.rising({level: self._simplest(field, rate) for level, field in fields.items()}, rate)

    def race(self, fields: Mapping[str, Sequence[Settings]]) -> dict[str, Settings]:
        """The fastest of each level's field, best guess first. What a race measures chooses, and proves nothing."""
        left = {level: list(field) for level, field in fields.items()}
        winners = self.favourites(fields)
        for _ in range(HEATS):
            left = self._affordable_fields(left)
            if all(len(field) < 2 for field in left.values()):
                break
            rates = self._heat(self._runners(left))
            ranked = {level: sorted(field, key=lambda s: -rates[s]) for level, field in left.items()}
            winners = {level: self._simplest(field, rates.__getitem__) for level, field in ranked.items()}
            winners = self.rising(winners, rates.__getitem__)
            left = {level: ranked[level][: math.ceil(len(ranked[level]) / 2)] for level in winners}
        return winners

    def _affordable_fields(self, fields: Mapping[str, list[Settings]]) -> dict[str, list[Settings]]:
        """Without the least likely of the longest fields, until a heat fits before the proof."""
        left = {level: list(field) for level, field in fields.items()}
        time_left = self.deadline - self.clock() - self.proof_seconds(len(left))
        while max(map(len, left.values()), default=0) > 1 and self.generation_seconds(self._runners(left)) > time_left:
            max(left.values(), key=len).pop()
        return left

    def _runners(self, fields: Mapping[str, Sequence[Settings]]) -> list[Settings]:
        """Everything that runs in a heat, once: the baseline shows who is no faster."""
        return list(
            dict.fromkeys([self.tuning.baseline, *(settings for field in fields.values() for settings in field)])
        )

    def _heat(self, runners: Sequence[Settings]) -> dict[Settings, float]:
        """Items per second of settings that run side by side once; 0 for one that failed."""
        self.observe(stage="race between finalists", trying=None)
        names = {settings: str(number) for number, settings in enumerate(runners)}
        rounds = self._generation(0, {name: settings for settings, name in names.items()}, self._rounds())
        self.raced += rounds
        return {settings: typical_rate(rounds, name) for settings, name in names.items()}

    def _simplest(self, ranked: Sequence[Settings], rate: Callable[[Settings], float]) -> Settings:
        """The best, or one as fast that changes fewer knobs: what does not matter stays as the user has it."""
        equal = [settings for settings in ranked if rate(settings) >= EQUAL * rate(ranked[0])]
        return min(equal, key=lambda settings: len(settings.difference(self.tuning.baseline)), default=ranked[0])

    def rising(self, winners: Mapping[str, Settings], rate: Callable[[Settings], float]) -> dict[str, Settings]:
        """Without levels that are not clearly faster than all below them: the best of several seems faster by luck, and
        proving that it is not would take the others' time."""
        kept: dict[str, Settings] = {}
        bar = (1 + LUCK * self.tuning.noise) * rate(self.tuning.baseline)
        for level, settings in winners.items():
            if rate(settings) > bar:
                kept[level] = settings
                bar = (1 + LUCK * self.tuning.noise) * rate(settings)
        return kept

    # -- proof -----------------------------------------------------------------------------------------------------

    def prove(self) -> None:
        """Interleaved generations of the baseline and every level's contender, up to the look that decides."""
        tuning = self.tuning
        if not tuning.chosen:
            return
        contenders = self._affordable({BASELINE: tuning.baseline, **tuning.chosen})
        self.observe(stage="proof", trying=None)
        for generations in LOOKS:
            self._generations(contenders, generations - self.generation)
            waiting = still_open(tuning.chosen, tuning.rounds)
            if not waiting:
                break
            contenders = {name: settings for name, settings in contenders.items() if name in {BASELINE, *waiting}}

    def _affordable(self, contenders: dict[str, Settings]) -> dict[str, Settings]:
        """Without the least promising levels where two generations of all would not fit: one alone proves nothing.

        One slow trial makes the estimate too dark, so two levels always start; what they really take decides then.
        """
        while len(contenders) > LEAST_CONTENDERS:
            if self.clock() + LEAST_GENERATIONS * self.generation_seconds(contenders.values()) <= self.deadline:
                break
            del contenders[self._least_promising(contenders)]
        return contenders

    def _least_promising(self, contenders: Mapping[str, Settings]) -> str:
        """The level that seems to gain least over what is below it."""
        rounds, levels = self.tuning.rounds, list(contenders)

        def rate(name: str) -> float:
            return typical_rate(rounds, name) or self.tuning.estimate(contenders[name])

        return min(levels[1:], key=lambda name: rate(name) / max(map(rate, levels[: levels.index(name)])))

    def _generations(self, contenders: dict[str, Settings], count: int) -> None:
        """Up to ``count`` generations; where the time left is short for all, the least promising stay out first."""
        for _ in range(count):
            while not (rounds := self._affordable_rounds(contenders)) and len(contenders) > 2:
                del contenders[self._least_promising(contenders)]
            if not rounds:
                return
            self.generation += 1
            self.tuning.rounds += self._generation(self.generation, contenders, rounds)
            self._show(contenders)

    def _affordable_rounds(self, contenders: Mapping[str, Settings]) -> int:
        """Rounds of the next generation: as many as are worth its start, fewer where the generations up to the first
        look would not fit otherwise (two of them prove little, however long), and 0 where not even this one fits."""
        starting = self._starting(contenders.values())
        turn, left = sum(map(self._turn, contenders.values())), self.deadline - self.clock()
        for generations in range(max(1, min(LOOKS) - self.generation), 0, -1):
            fitting = (left / generations - starting) / turn
            if fitting >= 1:
                return int(min(self._rounds(), fitting))
        return 0

    def _show(self, contenders: Mapping[str, Settings]) -> None:
        """From now on the proof's own rates are shown: single trials may have been far off."""
        rates = {name: typical_rate(self.tuning.rounds, name) for name in contenders}
        best = max(rates, key=rates.__getitem__)
        self.observe(baseline_rate=rates[BASELINE] or None, best=contenders[best], best_rate=rates[best] or None)

    def _generation(self, number: int, contenders: Mapping[str, Settings], count: int) -> list[Round]:
        """Start all contenders afresh and let them take ``count`` blocks in turn."""
        rounds: list[Round] = []
        began = self.clock()
        with self.bench.contest(contenders, self.deadline) as contest:
            self.slowness = (self.clock() - began) / sum(map(self._resident_seconds, contenders.values()))
            for _ in range(count):
                rounds.append(Round(number, contest.round(BLOCK_SECONDS)))
                done = len(self.tuning.rounds) + len(rounds)
                self.observe(rounds=dict.fromkeys(rounds[-1].rates, done))
        return rounds

    # -- what it takes ---------------------------------------------------------------------------------------------

    def proof_seconds(self, levels: int) -> float:
        """Time kept back to prove ``levels`` contenders by what is known now, at most `PROOF_SHARE` of the run."""
        likely = [self.tuning.baseline] + [self.tuning.best] * levels
        each, whole = SLACK * self.generation_seconds(likely), self.deadline - self.started
        affordable = [looks * each for looks in LOOKS if looks * each <= LATER_SHARE * whole]
        return min(max([min(LOOKS) * each, *affordable]), PROOF_SHARE * whole)

    def generation_seconds(self, contenders: Iterable[Settings]) -> float:
        """Expected duration of one generation: every contender starts, warms up, and takes its blocks."""
        rounds, each = self._rounds(), list(contenders)
        return self._starting(each) + rounds * sum(map(self._turn, each))

    def _starting(self, contenders: Iterable[Settings]) -> float:
        """Start and warm-up of all contenders, as the last ones took them."""
        return self.slowness * sum(map(self._resident_seconds, contenders))

    def _resident_seconds(self, settings: Settings) -> float:
        """Start and warm-up, as the settings' own trial took them where there was one."""
        usual = max(WARMUP_SECONDS, WARMUP_STEPS * self._step_seconds(settings))
        for observation in reversed(self.tuning.history):
            outcome = observation.outcome
            if observation.settings == settings and isinstance(outcome, Completed) and outcome.measurement:
                return outcome.start_seconds + min(usual, outcome.measurement.warmup_seconds or usual)
        return self.start_seconds + usual

    def _turn(self, settings: Settings) -> float:
        return max(BLOCK_SECONDS, 1.5 * self._step_seconds(settings))

    def _step_seconds(self, settings: Settings) -> float:
        """Expected seconds of one optimizer step. A neighbour may have slowed a single trial many times over, so the
        best rate known bounds it."""
        estimate = self.tuning.estimate
        rate = max(estimate(settings), estimate(self.tuning.best) / MOST_GAIN)
        return self._seconds(settings, rate)

    def _seconds(self, settings: Settings, rate: float) -> float:
        """One optimizer step at ``rate`` items per second."""
        return settings.global_batch * self.items_per_sample / rate if rate else 0.0

    def _rounds(self) -> int:
        """Rounds that make a generation worth its start: two-stage sampling (Cochran, Sampling Techniques, 10.6).

        With ``w`` the variance between rounds and ``b`` that between generations, the least variance for the time is
        reached at ``sqrt(start / turn * w / b)`` rounds.
        """
        own = self.tuning.baseline
        if self._seconds(own, self.tuning.estimate(own)) > SLOW_STEP_SECONDS:
            return 1
        seen = round_variance([*self.raced, *self.tuning.rounds])
        scatter = self.tuning.noise**2 if seen is None else seen
        start = self._resident_seconds(own) / self._turn(own)
        return max(ROUNDS, min(MOST_ROUNDS, round(math.sqrt(start * scatter) / PRIOR_SPREAD)))
