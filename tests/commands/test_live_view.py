"""How often a log gets a line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.commands.live_view import LINE_SECONDS, _is_news
from autotune.core.settings import Settings
from autotune.report.live import RunProgress

SAID = RunProgress(stage="searching", baseline=Settings(), unit="samples", trials=3, elapsed=20.0)


@pytest.mark.parametrize(
    ("trials", "later", "news"),
    [(4, LINE_SECONDS, True), (4, LINE_SECONDS - 0.1, False), (3, 60.0, False), (9, 60.0, True)],
)
def test_at_most_one_line_in_ten_seconds(trials: int, later: float, news: bool) -> None:
    assert _is_news(SAID, replace(SAID, trials=trials, elapsed=SAID.elapsed + later)) == news


def test_the_first_line_comes_at_once() -> None:
    assert _is_news(None, replace(SAID, elapsed=0.0))
