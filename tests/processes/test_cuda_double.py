"""Cards in a process: the double breaks like CUDA, and what the product does with a card in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.cuda import variables

pytestmark = pytest.mark.torch

BEGIN = """
import os, time
import torch
from autotune import devices
from autotune.trial.child import probe_run, task

def in_fork(work):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            said = work()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, str(said).encode())
        os._exit(0)
    os.close(write)
    os.wait()
    return open(read).read()
"""
HONEST = """
def fails(kind, work):
    try:
        work()
    except kind as error:
        return str(error)

assert torch.cuda.is_available() and not torch.cuda.is_initialized() and probe_run.why_not_fork() is None
model = torch.nn.Linear(512, 512).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(64, 512).to("cuda")
torch.cuda.synchronize()
assert len(os.listdir("/proc/self/task")) > 1
began = time.perf_counter()
for _ in range(3):
    loss = model(x).square().mean()
    loss.backward()
loss.item()
assert time.perf_counter() - began >= 3 * 3 * 64 * 512 * 512 * 1.6e-9
bits = [model.weight.grad.clone()]
for _ in range(2):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    bits.append(model.weight.grad.clone())
assert not torch.equal(*bits[1:]) and torch.allclose(*bits[1:], rtol=1e-6)
assert (str(model.weight.grad.device), model.bias.is_cuda, optimizer.param_groups[0]["params"][0] is model.weight) == (
    "cuda:0", True, True)
assert "found at least two devices" in fails(RuntimeError, lambda: model(torch.ones(1, 512)))
assert "host memory first" in fails(TypeError, lambda: x.numpy())
assert "Cannot re-initialize CUDA in forked subprocess" in in_fork(lambda: torch.ones(1, device="cuda"))
assert "initialization error" in in_fork(lambda: x + 1)
before = torch.get_rng_state()
torch.nn.functional.dropout(x)
assert torch.equal(before, torch.get_rng_state())
held = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
other = "import torch; torch.empty(200 << 20, dtype=torch.uint8, device='cuda')"
import subprocess, sys
assert "CUDA out of memory" in subprocess.run([sys.executable, "-c", other], capture_output=True, text=True).stderr
del held
torch.cuda.empty_cache()
assert subprocess.run([sys.executable, "-c", other]).returncode == 0
"""
SNAPSHOT = """
from autotune.trial.child.snapshot import Snapshot

weight = torch.nn.Parameter(torch.ones(4 << 20, device="cuda"))
optimizer = torch.optim.Adam([weight])
weight.sum().backward()
optimizer.step()
optimizer.zero_grad()
torch.cuda.empty_cache()
held, moments = torch.cuda.memory_allocated(), optimizer.state[weight]["exp_avg"].clone().sum()
start = Snapshot.take([optimizer], [], None)
assert torch.cuda.memory_allocated() - held < 1 << 20, "a copy of the state is on the card"
drawn = torch.rand(2, device="cuda")
optimizer.state[weight]["exp_avg"].zero_()
start.restore()
assert optimizer.state[weight]["exp_avg"].device == weight.device
assert optimizer.state[weight]["exp_avg"].sum() == moments
assert torch.equal(torch.rand(2, device="cuda"), drawn), "dropout draws otherwise in each comparison"
"""
STARTED = """
task.warm_lazy_imports()
assert probe_run.why_not_fork() is None
os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # as a script does, after the fork server has looked at itself
assert torch.cuda.get_device_name() == "NVIDIA Double 4000"
assert "CUDA" in probe_run.why_not_fork()
"""
ASKED = """
assert torch.cuda.is_available()
assert "Cannot re-initialize" in in_fork(lambda: torch.ones(1, device="cuda"))
assert "CUDA" in probe_run.why_not_fork()
"""
NO_CARD = """
assert not torch.cuda.is_available() and in_fork(torch.cuda._is_in_bad_fork) == "True"
assert probe_run.why_not_fork() is None
"""


@pytest.mark.parametrize(
    ("code", "options"),
    [
        pytest.param(HONEST, {"memory": 850 << 20}, id="it breaks like CUDA"),
        pytest.param(SNAPSHOT, {}, id="going back"),
        pytest.param(STARTED, {"cards": 2}, id="a fork server asks no driver"),
        pytest.param(STARTED, {"cards": 2, "without": "library"}, id="nor without NVML"),
        pytest.param(ASKED, {"without": "library threads"}, id="a script that asked the driver cannot be forked"),
        pytest.param(NO_CARD, {"cards": 0, "without": "library"}, id="but it can if there is no card"),
    ],
)
def test_a_card_in_a_process(code: str, options: dict, tmp_path: Path) -> None:
    env = os.environ | variables(tmp_path, **options) | {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    done = subprocess.run([sys.executable, "-c", BEGIN + code], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
