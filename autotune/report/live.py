"""A tuning run in progress, on standard error: lines that change on a terminal, else a line now and then in a log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autotune.errors import cut
from autotune.knobs.settings import Settings
from autotune.report import formatting
from autotune.stats.proof import Proof
from autotune.tuning.events import Observer, RunProgress

P = ParamSpec("P")
T = TypeVar("T")
MAX_REASON = 120
LINE_SECONDS = 10.0
"""Between two lines of a log, at least."""
BAR_WIDTH = 16


def line(progress: RunProgress) -> str:
    """Return where the run stands, on one line."""
    return " | ".join([f"[{_clock(progress)}] {progress.stage}", *(text for text, _style in _parts(progress))])


def view(progress: RunProgress) -> Group:
    """Return where the run stands for a terminal: a line each, cut at its width."""
    head = Table.grid(padding=(0, 1))
    if progress.budget:
        bar = ProgressBar(progress.budget, min(progress.elapsed, progress.budget), width=BAR_WIDTH)
        head.add_row(bar, _clock(progress))
    else:
        head.add_row(_clock(progress))
    known = [(progress.stage, "bold"), *_parts(progress)]
    return Group(head, *(Text(text, style, no_wrap=True, overflow="ellipsis") for text, style in known))


def _clock(progress: RunProgress) -> str:
    is_within = 0 < progress.budget >= progress.elapsed
    return formatting.duration(progress.elapsed) + (f" of {formatting.duration(progress.budget)}" if is_within else "")


def _parts(progress: RunProgress) -> Iterator[tuple[str, str]]:
    """Yield what is known, each with its style."""
    if progress.trials:
        yield formatting.count(progress.trials, "trial"), ""
    if progress.trying is not None:
        yield f"trying {formatting.tried(progress.trying, progress.baseline)}", "cyan"
    if progress.baseline_rate is not None:
        yield f"your settings {formatting.rate(progress.baseline_rate, progress.unit)}", ""
    if progress.best is not None and progress.best != progress.baseline:
        yield _best(formatting.tried(progress.best, progress.baseline), progress.gain)
    if progress.rounds:
        yield ", ".join(f"{name} {done}" for name, done in progress.rounds.items()), ""
    if progress.failures:
        last = f", last: {cut(' '.join(progress.last_failure.split()), MAX_REASON)}" if progress.last_failure else ""
        yield f"{formatting.count(progress.failures, 'setting')} did not work{last}", "dim"


def _best(found: str, gain: Proof | None) -> tuple[str, str]:
    """Return the fastest settings; their gain only with an interval, for that of single trials may be far off."""
    if gain is None or not math.isfinite(gain.high):
        return f"fastest so far, not proven: {found}", "yellow"
    return f"so far {formatting.short(gain)} with {found}", "green" if gain.gain else "yellow"


class _Console(Console):
    """A console that ignores a closed pipe. Rich would end the process, and its result would be lost."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class _Live(Live):
    """Lines that change, also where the terminal was closed."""

    def __init__(self, console: Console, now: Callable[[], Group]) -> None:
        super().__init__(console=console, get_renderable=now, refresh_per_second=1, transient=True)

    def refresh(self) -> None:
        with suppress(OSError):
            super().refresh()


@contextmanager
def live_view(budget: float, started: float) -> Iterator[Observer]:
    """Yield an observer of a run that ``started`` on the monotonic clock and takes ``budget`` seconds; 0 if not known.

    On a terminal the clock moves every second: drawing takes a thousandth of one.
    """
    console = _Console(stderr=True)
    progress = RunProgress(stage="probing the machine", baseline=Settings(), unit="samples", budget=budget)
    said: RunProgress | None = None

    def now() -> Group:
        return view(replace(progress, elapsed=time.monotonic() - started))

    with _Live(console, now) if console.is_terminal else nullcontext() as live:

        def observe(**changes: Any) -> None:
            nonlocal progress, said
            nothing = {"trying": None} if "stage" in changes else {}
            progress = replace(progress, **(nothing | changes), elapsed=time.monotonic() - started)
            if live is not None:
                live.refresh()
            elif said is None or said.stage != progress.stage or progress.elapsed - said.elapsed >= LINE_SECONDS:
                said = progress
                with suppress(OSError):  # a log on a full disk
                    console.print(line(progress), markup=False, highlight=False, soft_wrap=True)

        yield observe


def shown(tune: Callable[P, T]) -> Callable[P, T]:
    """Return `autotune.tune` that shows its progress as the command does, unless it is given an observer."""

    @wraps(tune)
    def tuned(*arguments: P.args, **options: P.kwargs) -> T:
        if "observe" in options:
            return tune(*arguments, **options)
        with live_view(0.0, time.monotonic()) as options["observe"]:
            return tune(*arguments, **options)

    return tuned
