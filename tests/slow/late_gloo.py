"""Run by `test_two_ranks` as each of two ranks: trains while gloo's threads get almost no time, and ends.

Their last work then falls into the interpreter's end, as it does now and then on a busy machine.
"""

from __future__ import annotations

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
