"""Gloo's own threads that get CPU time late: two ranks train while these get almost none, and end."""

import os
from pathlib import Path

import pytest

from autotune.scripts.entry.torchrun import free_port
from tests.processes.runtime.test_two_ranks import ROOT, by_gloo

SCRIPT = """
import os
from pathlib import Path

import torch
from torch import nn

import autotune
from autotune.runtime.processes import GLOO_THREAD

tuned = autotune.load()
model = nn.Linear(8, 1)
model, optimizer = tuned.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
core = sorted(os.sched_getaffinity(0))[int(os.environ["RANK"]) % len(os.sched_getaffinity(0))]
for task in Path("/proc/self/task").iterdir():
    os.sched_setaffinity(int(task.name), {core})
    if (task / "comm").read_text().strip() == GLOO_THREAD:
        os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))
tuned.backward(model(torch.ones(4, 8)).sum())
optimizer.step()
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="needs threads of lower priority")
def test_late_threads_of_gloo_do_not_abort_a_finished_training(tmp_path: Path) -> None:
    """The last work of gloo's threads falls into the interpreter's end, as it does now and then on a busy machine."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    (tmp_path / "train.py").write_text(SCRIPT)
    by_gloo([str(tmp_path / "train.py")], {**os.environ, **meeting, "AUTOTUNE_DISABLE": "1", "PYTHONPATH": str(ROOT)})
