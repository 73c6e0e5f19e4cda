"""`autotune run --timeout`: a rank that hangs ends all of them in seconds, and its own stack says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.core.settings import Settings
from autotune.store import profiles
from tests.end_to_end.harness import autotune, left
from tests.runtime.records import profile

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).with_name("hanging_train.py")


@pytest.mark.parametrize(
    ("backend", "how"),
    [
        ("gloo", "loaded"),
        ("gloo", "own"),
        pytest.param("mpi", "loaded", marks=pytest.mark.mpi),
        pytest.param("mpi", "own", marks=pytest.mark.mpi),
    ],
)
def test_a_hung_rank_ends_the_training_and_shows_where(tmp_path: Path, backend: str, how: str) -> None:
    settings = Settings(processes=2, backend=backend, threads=1, batch_size=6)
    saved = profiles.write(tmp_path / "tuned.yaml", profile(settings))
    done = autotune(tmp_path, "run", "--profile", str(saved), "--timeout", "4s", str(SCRIPT), how)
    assert done.code not in (0, 124), done.err
    assert "rank 1 took no optimizer step for 4 s (--timeout)" in done.err
    assert done.err.count("rank 1 took no") == 1
    assert f'"{SCRIPT}", line' in done.err
    assert "in hang" in done.err
    assert left() == set()


def test_training_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    saved = profiles.write(tmp_path / "tuned.yaml", profile(Settings(threads=1, batch_size=12)))
    script = tmp_path / "train.py"
    script.write_text(
        "import time, torch, autotune\n"
        "tuned = autotune.load()\n"
        "model = torch.nn.Linear(1, 1)\n"
        "model, optimizer = tuned.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))\n"
        "until = time.monotonic() + 6\n"
        "while time.monotonic() < until:\n"
        "    tuned.backward(model(torch.ones(1, 1)).sum()); optimizer.step(); optimizer.zero_grad()\n"
        "tuned.close()\n"
        "time.sleep(5.5)\n"
        "print('done')\n"
    )
    done = autotune(tmp_path, "run", "--profile", str(saved), "--timeout", "5s", str(script))
    assert (done.code, done.out) == (0, "done\n"), done.err
