"""Standard streams that whoever started the command has closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles import file
from tests.doubles.proven_profile import profile

SHOW = [sys.executable, "-m", "autotune", "validate", "missing.yaml"]


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


def with_output(output: Any, folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """``autotune`` with ``words``, in a folder with a profile, where standard output is ``output``."""
    file.write(folder / "p.yaml", profile(Settings()))
    file.write(folder / "profiles" / "key" / "train.yaml", profile(Settings()))
    environment = {**os.environ, "PYTHONPATH": str(Path(file.__file__).parents[2])}
    command = [sys.executable, "-m", "autotune", *words]
    return subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.PIPE, check=False)


@pytest.mark.parametrize("words", [["profiles", "list"], ["show", "p.yaml"], ["validate", "p.yaml"]])
def test_a_closed_pipe_is_no_traceback(words: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = with_output(writer, tmp_path, *words)
    os.close(writer)
    assert b"Traceback" not in done.stderr, done.stderr.decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_output_is_one_sentence(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = with_output(full, tmp_path, "show", "p.yaml")
    assert done.stderr.decode() == "autotune: the output cannot be written (No space left on device)\n"
    assert done.returncode == 2
