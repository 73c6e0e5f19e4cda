"""A script under `autotune run`: what it sees, how it trains and how it ends are those of plain Python."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from tests.unit.records import profile

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[3]
SURROUNDING = {
    "ACCELERATE_MIXED_PRECISION": "bf16",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "8",
    "OMPI_COMM_WORLD_RANK": "5",
    "RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
"""What the user's job has set: a sweep, and a process group of one."""

TRAINS = """
import json, os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
names = ("ACCELERATE_", "SLURM_", "OMPI_", "RANK", "WORLD_SIZE", "MASTER_", "AUTOTUNE_", "PYTHONPATH")
found = {"variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(names)}}
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.rand(16, 4), torch.rand(16, 1)), batch_size=4, shuffle=True)
attributes = [set(vars(each)) for each in (model, optimizer, loader)]
found["losses"] = []
for inputs, targets in loader:
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found["losses"].append(loss.item())
found["attributes"] = [sorted(set(vars(each)) - old) for each, old in zip((model, optimizer, loader), attributes)]
owners = (DataLoader, torch.optim.Optimizer, torch.optim.AdamW, nn.Module, nn.Linear, torch.autograd, torch, dist)
found["patched"] = [
    f"{owner.__name__}.{name}" for owner in owners for name, value in vars(owner).items()
    if type(value).__name__ == "function" and value.__code__.co_filename.startswith(sys.argv[-1])
]
dist.destroy_process_group()
print(json.dumps(found))
sys.exit(3)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "train.py"
    path.write_text(TRAINS)
    return path


def start(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python with ``words``, inside the user's job."""
    own = {**os.environ, **SURROUNDING, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, *map(str, words)]
    return subprocess.run(line, env=own, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def plain(script: Path) -> dict[str, Any]:
    """What the script prints in plain Python."""
    done = start(script, ROOT / "autotune")
    assert done.returncode == 3, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def written(path: Path, name: str = "train", **changes: Any) -> Path:
    """Write a profile of a script, which changes what is named."""
    baseline = Settings(batch_size=4, threads=os.cpu_count() or 1)
    made = profile(baseline.but(**changes))
    target = dataclasses.replace(made.target, name=name, script="batches")
    return profiles.write(path, dataclasses.replace(made, target=target, baseline=baseline))


def test_a_process_wide_setting_touches_nothing_else(script: Path, plain: dict[str, Any], tmp_path: Path) -> None:
    made = written(tmp_path / "own.yaml", malloc="keep")
    done = start("-m", "autotune", "run", "--profile", made, script, ROOT / "autotune")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert found == plain
    assert found["patched"] == []
    assert found["variables"] == {**SURROUNDING, "PYTHONPATH": str(ROOT)}


def test_a_script_without_pytorch_says_so_at_its_end(tmp_path: Path) -> None:
    made = written(tmp_path / "own.yaml", malloc="keep")
    (tmp_path / "train.py").write_text("print('done')")
    done = start("-m", "autotune", "run", "--quiet", "--profile", made, tmp_path / "train.py")
    assert done.stdout == "done\n"
    assert done.stderr.endswith("autotune: the script has not imported PyTorch: its profile had no effect\n")


FAILS = """
import autotune, sys, torch
from torch.utils.data import DataLoader
def train(tuned):
    raise ValueError("mine")
sys.excepthook = lambda kind, error, trace: print("hook", kind.__name__, error, file=sys.stderr)
"""
LOADS = "tuned = autotune.load('own.yaml')\n"
SAID = "autotune: this training ran with level safe: malloc=keep. AUTOTUNE_DISABLE=1 runs it without"


@pytest.mark.parametrize(
    ("text", "run", "disabled", "said"),
    [
        ("train(None)", True, "", [SAID]),
        ("raise KeyboardInterrupt('mine')", True, "", [SAID]),
        (f"{LOADS}raise KeyboardInterrupt('mine')", False, "", [SAID]),
        (f"{LOADS}train(tuned)", False, "", [SAID]),
        (f"{LOADS}with tuned:\n    train(tuned)", False, "", [SAID]),
        (f"{LOADS}tuned.close()\ntrain(tuned)", False, "", []),
        (f"{LOADS}train(tuned)", False, "1", []),
        (f"{LOADS}sys.exit('mine')", False, "", []),
    ],
    ids=["run", "interrupted", "load and interrupted", "load", "a with block", "closed", "disabled", "own exit"],
)
def test_an_error_is_followed_by_what_was_in_force(text, run, disabled, said, tmp_path, monkeypatch) -> None:
    """After all that the user's own hook shows, which stays in its place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DISABLE", disabled)
    written(tmp_path / "own.yaml", malloc="keep")
    (tmp_path / "train.py").write_text(FAILS + text)
    done = start(*(("-m", "autotune", "run", "--profile", "own.yaml") if run else ()), "train.py")
    interrupted = "Interrupt" in text  # it may hang
    assert done.returncode == (-signal.SIGINT if interrupted else 1)
    last = "mine" if "exit" in text else f"hook {'KeyboardInterrupt' if interrupted else 'ValueError'} mine"
    assert done.stderr.splitlines()[-1 - len(said) :] == [last, *said]


def test_another_tasks_processes_are_not_started(script: Path, plain: dict[str, Any], tmp_path: Path) -> None:
    made = written(tmp_path / "own.yaml", "other", processes=2, backend="gloo", batch_size=2)
    done = start("-m", "autotune", "run", "--profile", made, script, ROOT / "autotune")
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["losses"] == plain["losses"], "it trains once"
    assert "train is started as one process: the profile is of other" in done.stderr


LOGS = """
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import Fingerprint
from autotune.scripts.apply import Applied, Order

class Anything(tuple):
    __contains__ = lambda *_: True

own = Settings(batch_size=4)
tuned = own.but(num_workers=1, prefetch_factor=2, optimizer_impl="fused")
Applied(Order(tuned, own, Fingerprint(Anything(), Anything(), Anything()))).install()

import itertools, signal, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((4,), index / 64), index % 3

stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
log = open("log.csv", "w")  # nobody closes it
model = nn.Linear(4, 3)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Numbers(), batch_size=4, shuffle=True)
for epoch in itertools.count() if "for ever" in sys.argv else range(2):
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write("a line\\n")
        print("a batch", flush=True)
    if stopped:
        break
"""
"""What the script defines is held by PyTorch's classes as long as they are changed."""


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "train.py").write_text(LOGS)
    monkeypatch.chdir(tmp_path)
    return "train.py"


def test_a_file_that_nobody_closes_is_whole(logs: str) -> None:
    done = start(logs)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("log.csv").read_text() == "a line\n" * 32


def test_a_signal_to_the_group_reaches_the_script_alone(logs: str) -> None:
    line = [sys.executable, logs, "for ever"]
    own = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(line, env={**os.environ, "PYTHONPATH": str(ROOT)}, **own) as training:
        assert training.stdout.readline() == "a batch\n", training.stderr.read()
        os.killpg(training.pid, signal.SIGTERM)
        _out, error = training.communicate(timeout=60)
    assert training.returncode == 0, error
