"""A tuning run in progress, on standard error: a small panel on a terminal, else one line per event in a log.

Nothing here refreshes by itself: a thread that draws would disturb what is being measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from autotune.knobs.settings import Settings
from autotune.lines import cut
from autotune.report import formatting
from autotune.tuning.events import Event, Observer

BAR = 30
MAX_REASON = 120
LINE_SECONDS = 10.0
"""Between two lines of a log, at least."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """Where a tuning run stands. Seconds since its start; rates in ``unit`` per second, None until measured."""

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
    """Rounds finished by each contender of a race or proof."""


def render(progress: RunProgress) -> RenderableType:
    """Return a compact panel."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _rows(progress):
        table.add_row(name, Text(text, overflow="ellipsis", no_wrap=name != "trying"))
    return Panel(table, title="autotune", title_align="left", subtitle=_bar(progress) or None, width=formatting.WIDTH)


def line(progress: RunProgress) -> str:
    """Return the same on one line, for logs."""
    parts = [f"[{formatting.duration(progress.elapsed)}] {progress.stage}"]
    if progress.trials:
        parts.append(formatting.count(progress.trials, "trial"))
    if progress.trying is not None:
        parts.append(f"trying {formatting.tried(progress.trying, progress.baseline)}")
    if progress.baseline_rate is not None:
        parts.append(_best(progress))
    if progress.rounds:
        parts.append(_rounds(progress))
    if progress.failures:
        parts.append(_failures(progress))
    return " | ".join(parts)


def _rows(progress: RunProgress) -> list[tuple[str, str]]:
    rows = [("stage", f"{progress.stage}, {formatting.count(progress.trials, 'trial')} done")]
    if progress.trying is not None:
        rows.append(("trying", formatting.tried(progress.trying, progress.baseline)))
    rows.append(("best", _best(progress).removeprefix("best ")))
    if progress.best is not None:
        rows.append(("", formatting.tried(progress.best, progress.baseline)))
    if progress.rounds:
        rows.append(("rounds", _rounds(progress)))
    if progress.failures:
        rows.append(("failed", _failures(progress)))
    return rows


def _best(progress: RunProgress) -> str:
    if progress.baseline_rate is None:
        return "measuring your settings first"
    baseline = f"your settings {formatting.rate(progress.baseline_rate, progress.unit)}"
    if progress.best_rate is None or progress.baseline_rate <= 0:
        return baseline
    ratio = formatting.times(progress.best_rate / progress.baseline_rate)
    return f"best {formatting.rate(progress.best_rate, progress.unit)} ({ratio}, unproven), {baseline}"


def _rounds(progress: RunProgress) -> str:
    return ", ".join(f"{name} {done}" for name, done in progress.rounds.items())


def _failures(progress: RunProgress) -> str:
    last = f", last: {cut(' '.join(progress.last_failure.split()), MAX_REASON)}" if progress.last_failure else ""
    return f"{formatting.count(progress.failures, 'setting')} did not work{last}"


def _bar(progress: RunProgress) -> Text:
    if progress.budget <= 0:
        return Text("")
    done = round(min(1.0, progress.elapsed / progress.budget) * BAR)
    left = formatting.duration(progress.budget - progress.elapsed)
    return Text(f"{'#' * done}{'.' * (BAR - done)} {left} left")


class _Console(Console):
    """A console that goes on in silence if its reader has gone. Rich would end the process, and its answer."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


@contextmanager
def live_view(budget: float, started: float) -> Iterator[Observer]:
    """Yield an observer that draws only when something happens.

    Args:
        budget: seconds of the whole run.
        started: its start on the monotonic clock.
    """
    console = _Console(stderr=True)
    progress = RunProgress(stage="probing the machine", baseline=Settings(), unit="samples", budget=budget)
    said: RunProgress | None = None
    panel = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else nullcontext()
    with panel as live:

        def observe(event: Event) -> None:
            nonlocal progress, said
            progress = replace(progress, **vars(event), elapsed=time.monotonic() - started)
            with suppress(OSError):  # a log on a full disk, a terminal that was closed
                if live is not None:
                    live.update(render(progress), refresh=True)
                elif _is_news(said, progress):
                    said = progress
                    console.print(line(progress), markup=False, highlight=False, soft_wrap=True)

        yield observe


def _is_news(said: RunProgress | None, now: RunProgress) -> bool:
    """Return True if a log needs a line: for a new stage; for a trial, failure or round some seconds after the last.

    Args:
        said: what the last line showed; None before the first.
        now: what another would show.
    """
    names = ("trials", "failures", "rounds")
    if said is None or said.stage != now.stage:
        return True
    return now.elapsed - said.elapsed >= LINE_SECONDS and any(getattr(said, n) != getattr(now, n) for n in names)
