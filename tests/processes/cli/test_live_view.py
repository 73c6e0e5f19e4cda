"""A log that takes no more lines."""

from __future__ import annotations

import subprocess
import sys

import pytest

WATCHED = """
import os, sys
from autotune.report import live

live.LINE_SECONDS = 0.0
with live.live_view(60.0, 0.0) as observe:
    for stage in ("one", "two", "three"):
        observe(stage=stage)
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
