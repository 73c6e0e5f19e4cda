"""Settings in, outcomes and rounds out: how the tuner's loop uses the runner."""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.allocator import GLIBC_RAISES_TO
from autotune.knobs.settings import Settings
from autotune.stats.measurement import LASTING, Block
from autotune.stats.outcome import Compared, Completed, Outcome
from autotune.stats.proof import Round
from autotune.trial.messages import TrialSpec, Without
from autotune.trial.parent.judge import check_losses, judge
from autotune.trial.parent.live import LiveTrials
from autotune.trial.parent.runner import Runner, RunningTrial, Timeouts

PATIENCE = 10.0
"""A trial may be this many times slower to start or to step than the baseline before it counts as hung..."""
LEAST_SECONDS = 10.0
"""...but never less than this."""
INSPECTION_SECONDS = 60.0
"""A trial that inspects may show no sign of life for so long: it reads profiles, too."""
COMPARING_SECONDS = 30.0
"""The same for one whose first steps are compared: a script may evaluate between two epochs."""
RESIDENT_WARMUP = 1.0
"""Cap on the warm-up of a candidate, in seconds: its settings have shown a steady state before."""


class TrialBench:
    """Measures settings with real trials and compares their losses with the baseline's.

    Args:
        runner: starts trials.
        baseline: the user's settings; their first measured trial gives the reference losses.
        seed: of data order and weights, and of the order of turns.
        patience: seconds without a sign of life that the baseline's first trial may take; more if the script itself has
            taken long to start.

    Attributes:
        mmap_threshold: see `TrialSpec`. A run gets there in its first evaluation, which a trial does not have.
        is_live: settings change inside a running training, as far as they can: starting a trial takes long.
    """

    def __init__(self, runner: Runner, baseline: Settings, seed: int = 0, patience: float = 60.0) -> None:
        self.runner, self.baseline, self.seed = runner, baseline, seed
        self.timeouts = Timeouts(starting=max(patience, runner.patience), stepping=patience)
        self.reference: tuple[float, ...] = ()
        self.mmap_threshold = GLIBC_RAISES_TO
        self.is_live = runner.no_fork_reason is not None
        self._live = LiveTrials(self._start_live, baseline, lambda: runner.deadline)
        runner.at_end.callback(self._live.close)
        self._random = random.Random(seed)
        self._cpu_wait = 0.0
        """Largest CPU-wait share in the previous replicate."""
        self._was_undisturbed = False
        """Whether any trial was: a load that never ends is this machine's normal."""

    def remember(self, outcome: Outcome) -> None:
        """Take reference losses and timeouts from an outcome of the baseline."""
        if not isinstance(outcome, Completed) or outcome.measurement is None:
            return
        self.reference = self.reference or outcome.losses
        self.timeouts = Timeouts(
            starting=max(LEAST_SECONDS, PATIENCE * outcome.start_seconds),
            stepping=max(LEAST_SECONDS, PATIENCE * outcome.measurement.step_seconds),
        )

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        """Run one trial and judge it by its end and its losses; run it once more if others disturbed all of it."""
        outcome = self._measure(settings, give_up_below, deadline)
        if self._was_undisturbed and _disturbed(outcome):
            outcome = self._measure(settings, give_up_below, deadline)
        self._was_undisturbed = self._was_undisturbed or (outcome.measured and not _disturbed(outcome))
        return outcome

    def _start_live(self, settings: Settings) -> RunningTrial:
        trial = self.runner.start(self._resident(settings), self._timeouts(settings))
        trial.ready()
        return trial

    def _judged(self, work: Callable[[], Outcome]) -> Outcome:
        """Return the outcome of ``work`` in the running training, also if that could not be started again."""
        asked = time.monotonic()
        try:
            return work()
        except (UserCodeError, NothingUsable) as error:
            return judge(self.runner.not_started(error, asked))

    def _spec(self, settings: Settings, **more: Any) -> TrialSpec:
        """Return a trial of ``settings`` beside the baseline, with ``more`` of its fields."""
        own: dict[str, Any] = {"seed": self.seed, "own": self.baseline, "mmap_threshold": self.mmap_threshold}
        return TrialSpec(settings=settings, **(own | more))

    def _resident(self, settings: Settings, without: Without = Without.NOTHING) -> TrialSpec:
        live = self.is_live
        return self._spec(settings, resident=True, live=live, warmup_seconds=RESIDENT_WARMUP, without=without)

    def _measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        if self.is_live:
            outcome = self._judged(lambda: self._live.measure(settings, deadline))
        else:
            spec = self._spec(settings, give_up_below=give_up_below)
            outcome = judge(self.runner.run(spec, replace(self._timeouts(settings), deadline=deadline)))
        if settings == self.baseline:
            self.remember(outcome)
        same_batch = settings.global_batch == self.baseline.global_batch
        return outcome if self.is_live else check_losses(outcome, settings, self.reference, same_batch=same_batch)

    def _timeouts(self, settings: Settings, silence: float = 0.0) -> Timeouts:
        """Return the timeouts of a trial whose steps may show no sign of life for so many seconds of ``silence``.

        Several processes of a script run it from its start, which takes longer.
        """
        starting, stepping = self.timeouts.starting, max(silence, self.timeouts.stepping)
        if settings.processes > 1:
            starting = max(starting, PATIENCE * self.runner.several_seconds)
        return replace(self.timeouts, starting=starting, stepping=stepping, deadline=self.runner.deadline)

    def compare(self, settings: Settings) -> Outcome:
        """Return `Compared` of the first steps of ``settings`` and of the baseline at the same global batch, or how the
        trial failed."""
        path = self.runner.setup.paths.first_steps(settings.global_batch)
        reference = self.baseline.but(batch_size=-(-settings.global_batch // self.baseline.processes))
        if self.is_live and settings.start_part == self.baseline.start_part:
            return self._judged(lambda: self._live.compare(settings, reference))
        known = path.exists() or settings == reference
        for each in (settings,) if known else (reference, settings):
            spec = self._spec(each, own=reference, first_steps=str(path))
            outcome = judge(self.runner.run(spec, self._timeouts(each, COMPARING_SECONDS)))
            if not isinstance(outcome, Compared):
                break
        return outcome

    def inspect(
        self, settings: Settings, function: str, seconds: float, **more: Any
    ) -> tuple[Outcome, Mapping[str, Any]]:
        """Run a trial that measures by ``function``: how it ended, and what it found, empty if it failed.

        Args:
            settings: of the trial.
            function: see `TrialSpec.inspect`.
            seconds: that it should take, once the trial is warm.
            more: other fields of `TrialSpec`.
        """
        warmup = RESIDENT_WARMUP
        spec = self._spec(settings, inspect=function, max_seconds=seconds, warmup_seconds=warmup, **more)
        end = self.runner.run(spec, self._timeouts(settings, INSPECTION_SECONDS))
        return judge(end), (end.report.inspection if end.report is not None else None) or {}

    @contextlib.contextmanager
    def start_replicate(
        self, candidates: Mapping[str, Settings], without: Mapping[str, Without] | None = None
    ) -> Iterator[RunningReplicate]:
        """Start all ``candidates`` in new processes in random order, warm and paused. Live ones share one. ``without``
        names the part of the step that a candidate leaves out."""
        self._live.close()
        shared: dict[Any, RunningTrial] = {}
        with contextlib.ExitStack() as running:

            def trial_of(name: str) -> RunningTrial:
                """Return the trial of a candidate. A live one that came to its own end is started again."""
                settings, part = candidates[name], (without or {}).get(name, Without.NOTHING)
                key = (settings.start_part, part) if self.is_live else name
                if key not in shared or (self.is_live and shared[key].is_over):
                    trial = self.runner.start(self._resident(settings, part), self._timeouts(settings))
                    shared[key] = running.enter_context(trial)
                    trial.ready()
                return shared[key]

            for name in self._random.sample(list(candidates), len(candidates)):
                trial_of(name)
            replicate = RunningReplicate(candidates, trial_of, self._random, self._cpu_wait, live=self.is_live)
            yield replicate
            self._cpu_wait = replicate.cpu_wait


@dataclass
class RunningReplicate:
    """Resident trials that take blocks in turn.

    Attributes:
        candidates: settings by name.
        trial_of: returns the trial of a candidate: a live one may serve several.
        turns: decides their order.
        cpu_wait: largest CPU wait share of a candidate during the last round; before the first, as the caller gave it.
        live: the trials change to the settings of a candidate.
        neighbours: processors that other processes kept busy during the last round, on average.
        ended: trials that are over, by their candidates.
    """

    candidates: Mapping[str, Settings]
    trial_of: Callable[[str], RunningTrial]
    turns: random.Random
    cpu_wait: float = 0.0
    live: bool = False
    neighbours: float = 0.0
    ended: dict[str, RunningTrial] = field(default_factory=dict)

    def round(self, seconds: float) -> dict[str, float]:
        """Measure one block of each, in random order: items per second by name. A candidate that ended is left out."""
        order = self.turns.sample(list(self.candidates), len(self.candidates))
        taken = {name: self._block(name, seconds) for name in order}
        blocks = {name: block for name, block in taken.items() if block is not None}
        self.neighbours = statistics.mean(block.neighbours for block in blocks.values()) if blocks else 0.0
        self.cpu_wait = max((block.cpu_wait for block in blocks.values()), default=self.cpu_wait)
        return {name: block.rate for name, block in blocks.items()}

    def rounds(self, replicate: int, number: int, seconds: float) -> list[Round]:
        """Measure ``number`` rounds with blocks of ``seconds``."""
        return [Round(replicate, self.round(seconds), self.neighbours) for _ in range(number)]

    def _block(self, name: str, seconds: float) -> Block | None:
        """Measure a block; once more if a burst disturbed it, which is over by then.

        Not if the round before was disturbed too: beside a lasting load only the bad blocks would be taken again.
        """
        trial, settings = self.trial_of(name), self.candidates[name] if self.live else None
        block = trial.block(seconds, settings)
        if trial.is_over and self.live:
            trial = self.trial_of(name)
            block = trial.block(seconds, settings)
        if block is not None and block.disturbed and self.cpu_wait <= LASTING:
            block = trial.block(seconds, settings)
        if block is None:
            self.ended[name] = trial
        return block


def _disturbed(outcome: Outcome) -> bool:
    """Return True if others disturbed all of a trial."""
    return outcome.measurement is not None and outcome.measurement.disturbed
