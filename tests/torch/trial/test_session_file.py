"""Only what this very run has written is unpickled."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.trial import session_task
from autotune.trial.session_task import read


class Trap:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A written session."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "scratch"
    folder.mkdir(mode=0o700)
    parts = {"build_model": lambda: 1, "build_dataset": lambda: 2, "compute_loss": lambda model, batch: 3}
    return session_task.write(parts, "own", folder)


def digest(task: Path) -> str:
    return task.read_text().split("read(__file__, '")[1].split("'")[0]


def test_what_was_written_is_read(task: Path) -> None:
    assert read(str(task), digest(task))["build_dataset"]() == 2


def test_another_file_in_its_place_is_not_loaded(task: Path) -> None:
    trap = task.with_name("trapped")
    task.with_suffix(".pickle").write_bytes(pickle.dumps(Trap(trap)))
    with pytest.raises(PermissionError, match="not the file that this run has written"):
        read(str(task), digest(task))
    assert not trap.exists()


@pytest.mark.parametrize(("name", "mode"), [("scratch", 0o755), ("scratch", 0o720), ("scratch/own.pickle", 0o644)])
def test_what_others_can_reach_is_not_loaded(name: str, mode: int, task: Path) -> None:
    (task.parent.parent / name).chmod(mode)
    with pytest.raises(PermissionError, match="others can read or write it"):
        read(str(task), digest(task))


def test_a_link_is_not_followed(task: Path) -> None:
    path = task.with_suffix(".pickle")
    path.rename(task.with_name("moved"))
    path.symlink_to(task.with_name("moved"))
    with pytest.raises(OSError):
        read(str(task), digest(task))
