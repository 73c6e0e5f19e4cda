"""How often a log gets a line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from autotune.knobs.settings import Settings
from autotune.report.live import LINE_SECONDS, RunProgress, _is_news

SAID = RunProgress(stage="searching", baseline=Settings(), unit="samples", trials=3, elapsed=20.0)


@pytest.mark.parametrize(
    ("trials", "later", "news"),
    [(4, LINE_SECONDS, True), (4, LINE_SECONDS - 0.1, False), (3, 60.0, False), (9, 60.0, True)],
)
def test_at_most_one_line_in_ten_seconds(trials: int, later: float, news: bool) -> None:
    assert _is_news(SAID, replace(SAID, trials=trials, elapsed=SAID.elapsed + later)) == news


def test_the_first_line_comes_at_once() -> None:
    assert _is_news(None, replace(SAID, elapsed=0.0))


def test_a_new_stage_has_its_line_at_once() -> None:
    """What takes long is on the screen while it does."""
    assert _is_news(SAID, replace(SAID, stage="race between finalists", elapsed=SAID.elapsed + 0.1))


WATCHED = """
import os, sys
from autotune.report import live
from autotune.tuning.events import StageStarted

live.LINE_SECONDS = 0.0
with live.live_view(60.0, 0.0) as observe:
    for stage in ("one", "two", "three"):
        observe(StageStarted(stage))
print("the answer")
"""


@pytest.mark.parametrize("log", ["reader that went away", "full disk"])
def test_a_log_that_takes_no_more_lines_ends_nothing(log: str) -> None:
    """Before, a run under ``2>&1 | head -1`` ended at its second line, without a profile."""
    with open("/dev/full", "w") as full:
        stderr = full if log == "full disk" else subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", WATCHED], stdout=subprocess.PIPE, stderr=stderr, text=True)
        if process.stderr is not None:
            process.stderr.close()
        assert process.stdout.read() == "the answer\n"
        assert process.wait(60) == 0
