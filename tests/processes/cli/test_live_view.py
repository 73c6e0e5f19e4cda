"""How often a log gets a line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from autotune.knobs.settings import Settings
from autotune.report.live import LINE_SECONDS, RunProgress, is_news

SAID = RunProgress(stage="searching", baseline=Settings(), unit="samples", trials=3, elapsed=20.0)


@pytest.mark.parametrize(
    ("later", "stage", "news"),
    [
        (LINE_SECONDS, "searching", True),
        (LINE_SECONDS - 0.1, "searching", False),
        (0.1, "race between finalists", True),
    ],
)
def test_a_log_has_a_line_for_a_new_stage_and_every_ten_seconds(later: float, stage: str, news: bool) -> None:
    assert is_news(SAID, replace(SAID, stage=stage, elapsed=SAID.elapsed + later)) == news
    assert is_news(None, SAID)


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
