"""One fork server for a module of tests, with a task that does what a file says."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.trial.parent.runner import Runner
from tests.processes.trial.running_scripts import running_task


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folder: a name that quoting could break, a task file, data and an output folder."""
    folder = tmp_path_factory.mktemp('user\'s "own" folder')
    shutil.copy(Path(__file__).with_name("stub_task.py"), folder / "stub.py")
    (folder / "out").mkdir()
    (folder / "out" / "old.txt").write_text("kept")
    return folder


@pytest.fixture(scope="module")
def runner(folder: Path) -> Iterator[Runner]:
    with running_task(folder / "stub.py") as found:
        found.warm()
        yield found
