"""The whole path on a small task: tune, prove, write, load, train; killed, resumed and interrupted.

No test waits for a machine's speed: budgets are long, and a run ends early because `--only` leaves little to try.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import yaml

from autotune.profiles.file import read
from autotune.profiles.places import journal_of
from tests.slow.harness import MLP, PATIENCE, autotune, begin, left, read_until, temporary_folder

pytestmark = pytest.mark.torch

SLOW_SAMPLES = "    import time\n\n    time.sleep(1e-3 * len(inputs))\n    return nn.functional"
"""Of the last line of `MLP`: two processes are twice as fast as one, whatever the machine."""

TRAINING = """
import sys, torch, autotune
sys.path.insert(0, ".")
import model as task
torch.manual_seed(0)
tuned = autotune.load(sys.argv[1] if len(sys.argv) > 1 else None, target="model")
model, optimizer = task.build_model(), None
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(task.build_dataset(), batch_size=64)
model, optimizer, loader = tuned.prepare(model, optimizer, loader)
losses = []
for _ in range(3):
    for batch in loader:
        loss = task.compute_loss(model, batch)
        tuned.backward(loss)
        optimizer.step(); optimizer.zero_grad()
        losses.append(float(loss))
assert sum(losses[-4:]) < sum(losses[:4]), losses
if tuned.is_main:
    print("processes", tuned.world_size, "threads", torch.get_num_threads())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MLP)
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path


def test_tune_then_train(folder: Path) -> None:
    task = MLP.replace("    return nn.functional", SLOW_SAMPLES).replace("torch.randn(2048", "torch.randn(256")
    (folder / "model.py").write_text(task)
    done = autotune(folder, "tune", "model.py", "--budget", "100s", "--only", "processes", "--json")
    assert done.code == 0, done.err
    assert left(0.0) == set()
    profile, answer = done.profile, done.answer
    assert {key: answer[key] for key in profile} == profile
    assert profile["schema"] == "autotune.profile"
    assert profile["recommended"] in ("safe", "amp"), "safe, where amp only repeats it"
    for level in ("safe", "amp"):
        settings = profile["levels"][level]["settings"]
        assert settings["processes"] * settings["batch_size"] == 64
        assert settings["precision"] == "fp32"
    for level in profile["levels"].values():
        assert level["speedup"]["low"] >= 1.0
    path = answer["path"]
    launched = [sys.executable, "-m", "autotune", "run", "--profile", path, "--level", "amp", "train.py"]
    for line in ([sys.executable, "train.py", path], launched):
        trained = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
        assert trained.returncode == 0, trained.stderr
    applied = profile["levels"]["amp"]["settings"]
    assert f"processes {applied['processes']} threads {applied['threads']}" in trained.stdout


def test_killed_then_resumed_then_interrupted(folder: Path) -> None:
    """The parent of all trials never loads torch; kill -9 leaves nothing; --resume repeats nothing; SIGTERM saves.
    SIGINT is sent in `test_terminal`.
    """
    words = ("tune", "model.py", "--budget", "10m", "--profile", "p.yaml")
    process = begin(folder, *words)
    read_until(process, r"\b([3-9]|\d\d) trials")
    assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert left() == set()
    assert not list(temporary_folder().glob("autotune-*"))
    assert not (folder / "p.yaml").exists()

    process = begin(folder, *words, "--resume")
    read_until(process, r"\b([6-9]|\d\d) trials")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert left() == set()
    profile = read(folder / "p.yaml")
    assert profile.evidence.partial
    assert not any(level.proven for level in profile.levels.values())

    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(journal_of(folder / "p.yaml")))
    )
    (study,) = optuna.get_all_study_summaries(storage)
    trials = optuna.load_study(study_name=study.study_name, storage=storage).trials
    finished = [yaml.safe_dump(trial.params) for trial in trials if trial.state.name == "COMPLETE"]
    assert len(finished) >= 6
    assert len(finished) - len(set(finished)) == finished.count(finished[0]) - 1, "only the baseline is repeated"
