"""Shows a run in progress on standard error: a live panel, or one line per event without a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from rich.console import Console
from rich.live import Live

from autotune.core.events import Event, Observer
from autotune.core.settings import Settings
from autotune.report.live import RunProgress, advanced, line, render


@contextmanager
def live_view(budget: float, started: float) -> Iterator[Observer]:
    """An observer that draws only when something happens: a thread that redraws would disturb the trials.

    Args:
        budget: seconds of the whole run.
        started: its start on the monotonic clock.
    """
    console = Console(stderr=True)
    progress = RunProgress(stage="probing the machine", baseline=Settings(), unit="samples", budget=budget)
    panel = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else nullcontext()
    with panel as live:

        def observe(event: Event) -> None:
            nonlocal progress
            before, progress = progress, replace(advanced(progress, event), elapsed=time.monotonic() - started)
            if live is not None:
                live.update(render(progress), refresh=True)
            elif _is_news(before, progress):
                console.print(line(progress), markup=False, highlight=False, soft_wrap=True)

        yield observe


def _is_news(before: RunProgress, now: RunProgress) -> bool:
    """Whether a log needs a line: a new stage, a new trial's result, a new failure, a new round."""
    names = ("stage", "trials", "failures", "rounds")
    return any(getattr(before, name) != getattr(now, name) for name in names)
