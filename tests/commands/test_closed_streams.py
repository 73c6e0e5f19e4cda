"""Standard streams that whoever started the command has closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = [sys.executable, "-m", "autotune.cli", "validate", "missing.yaml"]


def ended(folder: Path, redirections: str) -> subprocess.CompletedProcess[str]:
    """``autotune validate`` of a file that is not there, which says so on standard error."""
    line = ["sh", "-c", f'exec "$@" {redirections}', "sh", *SHOW]
    return subprocess.run(
        line, cwd=folder, capture_output=True, text=True, timeout=120, env=os.environ | {"LC_ALL": "C"}
    )


@pytest.mark.parametrize("redirections", ["2>&-", "<&- 2>&-", "<&- >&- 2>&-", ">&-"])
def test_words_for_a_closed_stream_go_nowhere(tmp_path: Path, redirections: str) -> None:
    done = ended(tmp_path, redirections)
    assert done.returncode == 2
    assert done.stdout == ""
    assert ("missing.yaml" in done.stderr) == ("2>" not in redirections)
