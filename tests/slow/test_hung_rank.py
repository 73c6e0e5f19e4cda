"""`autotune run --timeout`: a rank that hangs ends all of them in seconds, and its own stack says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from tests.slow.harness import autotune, left
from tests.unit.records import profile

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).with_name("hanging_train.py")


SECONDS = 10
"""The ranks of a busy machine may start some seconds apart."""


@pytest.mark.parametrize(("backend", "how"), [("gloo", "own"), pytest.param("mpi", "loaded", marks=pytest.mark.mpi)])
def test_a_hung_rank_ends_the_training_and_shows_where(tmp_path: Path, backend: str, how: str) -> None:
    settings = Settings(processes=2, backend=backend, threads=1, batch_size=6)
    saved = profiles.write(tmp_path / "tuned.yaml", profile(settings))
    done = autotune(tmp_path, "run", "--profile", str(saved), "--timeout", f"{SECONDS}s", str(SCRIPT), how)
    assert done.code not in (0, 124), done.err
    assert f"rank 1 took no optimizer step for {SECONDS} s (--timeout)" in done.err
    assert done.err.count("rank 1 took no") == 1
    assert f'"{SCRIPT}", line' in done.err
    assert "in hang" in done.err
    assert left() == set()
