"""Shows a run in progress on standard error: a live panel, or one line per event without a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

from rich.console import Console
from rich.live import Live

from autotune.knobs.settings import Settings
from autotune.report.live import RunProgress, advanced, line, render
from autotune.tuning.events import Event, Observer

LINE_SECONDS = 10.0
"""Between two lines of a log, at least."""


class _Console(Console):
    """A console that goes on in silence where its reader has gone. Rich would end the process, and its answer."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


@contextmanager
def live_view(budget: float, started: float) -> Iterator[Observer]:
    """An observer that draws only when something happens: a thread that redraws would disturb the trials.

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
            progress = replace(advanced(progress, event), elapsed=time.monotonic() - started)
            with suppress(OSError):  # a log on a full disk, a terminal that was closed
                if live is not None:
                    live.update(render(progress), refresh=True)
                elif _is_news(said, progress):
                    said = progress
                    console.print(line(progress), markup=False, highlight=False, soft_wrap=True)

        yield observe


def _is_news(said: RunProgress | None, now: RunProgress) -> bool:
    """Does a log need a line? A new stage does; a trial, failure or round if the last line is some seconds old.

    Args:
        said: what the last line told; None before the first.
        now: what another would tell.
    """
    names = ("trials", "failures", "rounds")
    if said is None or said.stage != now.stage:
        return True
    return now.elapsed - said.elapsed >= LINE_SECONDS and any(getattr(said, n) != getattr(now, n) for n in names)
