"""The scripts themselves: each trains under plain Python, the same in a fork, and is what the table says of it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.processes.scripts.corpus import CORPUS, HERE, Script, place

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    """A process that has imported torch and forks for each script."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.processes.scripts.forks"],
        cwd=ROOT,
        env=os.environ | ONE_THREAD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short name: loader workers pass tensors through sockets below TMPDIR, and a path that is over 107
    characters leaves them waiting for ever."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def world(folder: Path) -> dict[str, str]:
    """Make a project, a home and a temporary folder below ``folder``; returns the variables that name them."""
    for name in ("project", "home", "temp"):
        (folder / name).mkdir(parents=True)
    return {"HOME": str(folder / "home"), "TMPDIR": str(folder / "temp"), **ONE_THREAD}


def run(script: Script, folder: Path, forks: subprocess.Popen[str], known_by: str | None = None) -> tuple[int, str]:
    """Exit code and output of ``script`` in a fork; ``known_by``: with settings applied from outside."""
    assert forks.stdin is not None
    assert forks.stdout is not None
    variables = world(folder)
    project = folder / "project"
    job = {"line": place(script, project), "folder": str(project), "environment": variables, "known_by": known_by}
    print(json.dumps(job | {"output": str(folder / "output.txt")}), file=forks.stdin, flush=True)
    return int(forks.stdout.readline()), (folder / "output.txt").read_text("utf-8")


def losses(text: str) -> list[str]:
    """What ``step K loss X`` says of the first 20 steps, in order."""
    found = re.findall(r"step (\d+) loss (\S+)", text)
    assert [int(step) for step, _ in found] == list(range(1, len(found) + 1)), text
    return [loss for _, loss in found]


def forks_safely(text: str) -> bool | None:
    """Whether one thread was alive at the frontier; None where it was not reached."""
    found = re.search(r"threads (\d+)\n", text)
    return found[1] == "1" if found else None


def test_every_script_has_its_row() -> None:
    files = {path.stem for path in HERE.glob("*.py")} - {"__init__"}
    assert {script.name for script in CORPUS if not script.module} == files
    assert len({script.name for script in CORPUS}) == len(CORPUS)


def test_what_does_not_tune_says_why_not() -> None:
    assert all((script.why_not is None) == script.tunes for script in CORPUS)


@pytest.mark.parametrize("script", CORPUS, ids=lambda script: script.name)
def test_trains_the_same_with_settings_applied(
    script: Script, short_folder: Path, forks: subprocess.Popen[str]
) -> None:
    if script.needs and importlib.util.find_spec(script.needs) is None:
        pytest.skip(f"{script.needs} is not installed: pip install -c constraints.txt -e '.[frameworks]'")
    if script.name == "wants_cuda" and torch.cuda.is_available():
        pytest.skip("this machine has what the script wants")
    code, text = run(script, short_folder / "plain", forks)
    assert code == script.ends, text
    assert len(losses(text)) == (0 if script.ends else 20), text
    assert [name for name in script.writes if not (short_folder / "plain" / name).is_file()] == []
    assert script.ends or forks_safely(text) == script.fork_safe, text
    code, tuned = run(script, short_folder / "tuned", forks, script.known_by)
    assert code == script.ends, tuned
    assert ("applied True" in tuned) == script.tunes, tuned
    if script.order_kept:
        assert [float(loss) for loss in losses(tuned)] == pytest.approx(
            [float(loss) for loss in losses(text)], rel=1e-3
        )
    assert [name for name in script.writes if not (short_folder / "tuned" / name).is_file()] == []
