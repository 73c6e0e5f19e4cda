"""The whole path on a small task: tune, prove, write, load, train; interrupted, killed and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import yaml

from autotune.store.profiles import read
from tests.end_to_end.harness import MLP, autotune, begin, left, read_until, temporary_folder

pytestmark = pytest.mark.torch

TRAINING = """
import sys, torch, autotune
sys.path.insert(0, ".")
import model as task
torch.manual_seed(0)
tuned = autotune.load(sys.argv[1] if len(sys.argv) > 1 else None, target="model")
model, optimizer = task.build_model(), None
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(task.build_dataset(), batch_size=64)
model, optimizer, loader = tuned.prepare(model, optimizer, loader)
first = last = None
for _ in range(3):
    for batch in loader:
        loss = task.compute_loss(model, batch)
        tuned.backward(loss)
        optimizer.step(); optimizer.zero_grad()
        first = first or float(loss); last = float(loss)
assert last < first, (first, last)
if tuned.is_main:
    print("processes", tuned.world_size, "threads", torch.get_num_threads())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MLP)
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path


def test_tune_then_train(folder: Path) -> None:
    done = autotune(folder, "tune", "model.py", "--budget", "22s", "--json")
    assert done.code == 0, done.err
    assert left(0.0) == set()
    profile, answer = done.profile, done.answer
    assert {key: answer[key] for key in profile} == profile
    assert profile["schema"] == "autotune.profile/1"
    assert profile["recommended"] == "amp"
    baseline = profile["baseline"]["settings"]
    safe = profile["levels"]["safe"]["settings"]
    assert safe["precision"] == baseline["precision"] == "fp32"
    for level in ("safe", "amp"):
        settings = profile["levels"][level]["settings"]
        assert settings["processes"] * settings["batch_size"] == 64
    for level in profile["levels"].values():
        assert level["speedup"]["low"] >= 1.0
    path = answer["path"]
    launched = [sys.executable, "-m", "autotune.cli", "run", "--profile", path, "train.py"]
    for line in ([sys.executable, "train.py", path], launched):
        trained = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120)
        assert trained.returncode == 0, trained.stderr
    applied = profile["levels"]["amp"]["settings"]
    assert f"processes {applied['processes']} threads {applied['threads']}" in trained.stdout


def test_the_parent_never_loads_torch(folder: Path) -> None:
    process = begin(folder, "tune", "model.py", "--budget", "60s")
    read_until(process, "2 trials")
    assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=15)
    assert process.returncode == 130


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_saves_the_best_so_far(folder: Path, signum: signal.Signals) -> None:
    process = begin(folder, "tune", "model.py", "--budget", "60s", "--profile", "p.yaml")
    read_until(process, "3 trials")
    process.send_signal(signum)
    process.communicate(timeout=15)
    assert process.returncode == 130
    assert left() == set()
    profile = read(folder / "p.yaml")
    assert profile.evidence.partial
    assert not any(level.proven for level in profile.levels.values())


def test_kill_9_leaves_nothing_and_resume_repeats_nothing(folder: Path) -> None:
    process = begin(folder, "tune", "model.py", "--budget", "60s", "--profile", "p.yaml")
    read_until(process, "3 trials")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=15)
    assert left() == set()
    assert not list(temporary_folder().glob("autotune-*"))
    done = autotune(folder, "tune", "model.py", "--budget", "16s", "--profile", "p.yaml", "--resume", "--json")
    assert done.code == 0, done.err
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / "p.journal")))
    (study,) = optuna.get_all_study_summaries(storage)
    trials = optuna.load_study(study_name=study.study_name, storage=storage).trials
    finished = [yaml.safe_dump(trial.params) for trial in trials if trial.state.name == "COMPLETE"]
    repeats = [trial for trial in trials if trial.user_attrs.get("stage") == "again"]
    assert len(finished) >= 3
    assert len(finished) - len(set(finished)) <= len(repeats)


def test_a_budget_is_an_upper_bound(folder: Path) -> None:
    slow = MLP.replace("    return nn.functional", "    import time\n\n    time.sleep(0.2)\n    return nn.functional")
    (folder / "model.py").write_text(slow)
    done = autotune(folder, "tune", "model.py", "--budget", "14s", "--json")
    assert done.code == 0, done.err
    assert done.profile["evidence"]["seconds"] <= 14.0


NARROW = """

class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 10)

    def forward(self, inputs):
        outputs = self.linear(inputs)
        nearly_one = outputs * 0 + 1.001  # exactly 1 in bfloat16
        return outputs + torch.log(nearly_one - 1)


def build_model():
    return Narrow()
"""


NARROW_LOSS = """

def compute_loss(model, batch):
    inputs, targets = batch
    outputs = model(inputs)
    products = torch.mm(outputs, outputs.T)  # bfloat16 only where the whole loss runs in autocast
    return nn.functional.cross_entropy(outputs, targets) + torch.log(products * 0 + 1.001 - 1).mean()
"""


@pytest.mark.parametrize("narrow", [NARROW, NARROW_LOSS], ids=["in the model", "in the loss"])
def test_bf16_that_overflows_is_never_chosen(folder: Path, narrow: str) -> None:
    (folder / "model.py").write_text(MLP + narrow)
    done = autotune(folder, "tune", "model.py", "--budget", "60s", "--only", "precision", "--json")
    assert done.code == 0, done.err
    assert all(level["settings"]["precision"] == "fp32" for level in done.profile["levels"].values())
    failures = done.profile["evidence"]["failures"]
    assert any(failure["kind"] == "wrong-numbers" for failure in failures), failures
