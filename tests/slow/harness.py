"""Runs the real command line on real task files and looks at what is left afterwards."""

import atexit
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

MARKER = f"AUTOTUNE_TEST_RUN={os.getpid()}"
"""In the environment of every process that a run starts, as it was exec'd: nobody else's tuning has it."""

PATIENCE = 300
"""Seconds after which a command counts as hung; far more than a busy machine needs."""

MLP = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

CURRENT = dict(batch_size=64, num_workers=0)


def build_model():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


def build_dataset():
    inputs = torch.randn(2048, 32, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, inputs.argmax(dim=1) % 10)


def compute_loss(model, batch):
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)
"""


@dataclass(frozen=True)
class Finished:
    """One finished run of the command line."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> dict:
        return json.loads(self.out)

    @property
    def profile(self) -> dict:
        return yaml.safe_load(Path(self.answer["path"]).read_text())


@functools.cache
def temporary_folder() -> Path:
    """A short TMPDIR of these tests' own: another tuning run on this machine holds another lock."""
    folder = Path(tempfile.mkdtemp(prefix="e2e-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def environment() -> dict[str, str]:
    """Of every run: this one's with the marker and the temporary folder."""
    name, _, value = MARKER.partition("=")
    return os.environ | {"TMPDIR": str(temporary_folder()), name: value}


def command(*arguments: str, prefix: tuple[str, ...] = ()) -> list[str]:
    return [*prefix, sys.executable, "-m", "autotune", *arguments]


def autotune(folder: Path, *arguments: str, prefix: tuple[str, ...] = (), **env: str) -> Finished:
    """Run to the end in ``folder``."""
    done = subprocess.run(
        command(*arguments, prefix=prefix),
        cwd=folder,
        env=environment() | env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def begin(folder: Path, *arguments: str, **env: str) -> subprocess.Popen[str]:
    """Start in ``folder`` and return at once."""
    return subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment() | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Read its progress up to a line in which the expression ``words`` is found. Lines come every ten seconds."""
    seen = ""
    for line in process.stderr:
        seen += line
        if re.search(words, line):
            return seen
    raise AssertionError(f"ended before {words!r}:\n{seen}")


def marked() -> set[int]:
    """Living processes of these tests' tuning runs."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
                if not dead and MARKER.encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def left(within: float = 60.0) -> set[int]:
    """Processes of these tests' runs that still live after ``within`` seconds; returns as soon as there is none."""
    give_up = time.monotonic() + within
    while marked() and time.monotonic() < give_up:
        signal.sigtimedwait([], 0.05)
    return marked()


def cgroup(controller: str, **values: str) -> Path:
    """A cgroup v1 group with ``values``; raises OSError where not permitted."""
    group = Path(f"/sys/fs/cgroup/{controller}/autotune-test-{os.getpid()}")
    group.mkdir()
    for name, value in values.items():
        (group / name.replace("__", ".")).write_text(value)
    return group


def inside(group: Path) -> tuple[str, ...]:
    """Command prefix that moves the process into ``group`` first."""
    return ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
