"""Shows a run in progress on standard error: a live panel, or one line per event without a terminal."""

from __future__ import annotations

import time
from dataclasses import replace
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live

from autotune.core.events import Event
from autotune.core.settings import Settings
from autotune.report.live import RunProgress, advanced, line, render


class LiveView:
    """Drawn only when something happens: a thread that redraws would disturb the trials.

    Args:
        budget: seconds of the whole run.
        started: its start on the monotonic clock.
    """

    def __init__(self, budget: float, started: float, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.started = started
        self.progress = RunProgress(stage="probing the machine", baseline=Settings(), unit="samples", budget=budget)
        self.live = Live(console=self.console, auto_refresh=False, transient=True) if self.console.is_terminal else None
        self.shown: tuple[Any, ...] = ()

    def __enter__(self) -> LiveView:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def observe(self, event: Event) -> None:
        """Show what ``event`` changes."""
        self.progress = replace(advanced(self.progress, event), elapsed=time.monotonic() - self.started)
        if self.live is not None:
            self.live.update(render(self.progress), refresh=True)
        elif self._is_news():
            self.console.print(line(self.progress), markup=False, highlight=False, soft_wrap=True)

    def _is_news(self) -> bool:
        """Whether a log needs a line: a new stage, a new trial's result, a new failure."""
        progress = self.progress
        state = (progress.stage, progress.trials, progress.failures, sum(progress.rounds.values()))
        changed, self.shown = state != self.shown, state
        return changed
