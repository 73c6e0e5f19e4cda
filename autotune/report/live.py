"""A tuning run in progress, on standard error: on a terminal one line that changes, else a line now and then in a log.

Nothing here refreshes by itself: a thread that draws would disturb what is being measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autotune.errors import cut
from autotune.knobs.settings import Settings
from autotune.report import formatting
from autotune.tuning.events import Observer

MAX_REASON = 120
LINE_SECONDS = 10.0
"""Between two lines of a log, at least."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """The state of a tuning run. Seconds since its start; rates in ``unit`` per second, None until measured."""

    stage: str
    """What is going on, in plain words: ``baseline``, ``searching``, ``race``, ``proof``..."""
    baseline: Settings
    unit: str
    trying: Settings | None = None
    trials: int = 0
    baseline_rate: float | None = None
    best: Settings | None = None
    best_rate: float | None = None
    elapsed: float = 0.0
    budget: float = 0.0
    failures: int = 0
    last_failure: str = ""
    rounds: Mapping[str, int] = field(default_factory=dict)
    """Rounds finished by each candidate of a race or proof."""


def line(progress: RunProgress) -> str:
    """Return where the run stands, on one line."""
    is_within = 0 < progress.budget >= progress.elapsed
    budget = f" of {formatting.duration(progress.budget)}" if is_within else ""
    parts = [f"[{formatting.duration(progress.elapsed)}{budget}] {progress.stage}"]
    if progress.trials:
        parts.append(formatting.count(progress.trials, "trial"))
    if progress.trying is not None:
        parts.append(f"trying {formatting.tried(progress.trying, progress.baseline)}")
    if progress.baseline_rate is not None:
        parts.append(_best(progress))
    if progress.rounds:
        parts.append(", ".join(f"{name} {done}" for name, done in progress.rounds.items()))
    if progress.failures:
        last = f", last: {cut(' '.join(progress.last_failure.split()), MAX_REASON)}" if progress.last_failure else ""
        parts.append(f"{formatting.count(progress.failures, 'setting')} did not work{last}")
    return " | ".join(parts)


def _best(progress: RunProgress) -> str:
    own = progress.baseline_rate or 0.0
    baseline = f"your settings {formatting.rate(own, progress.unit)}"
    if progress.best_rate is None or own <= 0:
        return baseline
    ratio = formatting.times(progress.best_rate / own)
    return f"best {ratio} (unproven), {baseline}"


class _Console(Console):
    """A console that ignores a closed pipe. Rich would end the process, and its result would be lost."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


@contextmanager
def live_view(budget: float, started: float) -> Iterator[Observer]:
    """Yield an observer, of a run of ``budget`` seconds that ``started`` on the monotonic clock, that draws only when
    something happens."""
    console = _Console(stderr=True)
    progress = RunProgress(stage="probing the machine", baseline=Settings(), unit="samples", budget=budget)
    said: RunProgress | None = None
    screen = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else nullcontext()
    with screen as live:

        def observe(**changes: Any) -> None:
            nonlocal progress, said
            nothing = {"trying": None} if "stage" in changes else {}
            progress = replace(progress, **(nothing | changes), elapsed=time.monotonic() - started)
            with suppress(OSError):  # a log on a full disk, a terminal that was closed
                if live is not None:
                    live.update(Text(line(progress)), refresh=True)
                elif said is None or said.stage != progress.stage or progress.elapsed - said.elapsed >= LINE_SECONDS:
                    said = progress
                    console.print(line(progress), markup=False, highlight=False, soft_wrap=True)

        yield observe
