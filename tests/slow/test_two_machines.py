"""Two machines for real: network namespaces joined by a cable of their own, with host names that resolve to nothing."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from tests.slow.harness import PATIENCE
from tests.unit.records import profile

pytestmark = [pytest.mark.torch, pytest.mark.root]
SCRIPT = """
import json
import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import autotune

folder = Path(sys.argv[1])
tuned = autotune.load()
torch.manual_seed(0)
model = nn.Linear(8, 1)
inputs = torch.linspace(-1, 1, 30 * 8).reshape(30, 8)
loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=12)
model, optimizer, loader = tuned.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
for _ in range(2):
    for batch, target in loader:
        tuned.backward(nn.functional.mse_loss(model(batch), target))
        optimizer.step()
        optimizer.zero_grad()
weights = [parameter.flatten().tolist() for parameter in tuned.unwrap(model).parameters()]
seen = {"world": tuned.world_size, "threads": torch.get_num_threads(), "weights": weights}
seen["interface"] = os.environ.get("GLOO_SOCKET_IFNAME")
(folder / f"{tuned.rank}.json").write_text(json.dumps(seen))
"""
"""What each rank saw goes to FOLDER/<rank>.json."""
FIRST, SECOND = "10.213.0.1", "10.213.0.2"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[str, str]]:
    """Names of two network namespaces that reach each other and nothing else."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("ip (iproute2) or unshare is missing")
    names = (f"autotune{os.getpid()}a", f"autotune{os.getpid()}b")
    cables = (f"at{os.getpid()}a", f"at{os.getpid()}b")
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", cables[0], "netns", names[0], "type", "veth", "peer", "name", cables[1], "netns", names[1])
        for name, cable, address in zip(names, cables, (FIRST, SECOND), strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
            _ip("-n", name, "link", "set", cable, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"no network namespaces here: {refused.stderr.strip()}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def inside(name: str, command: list[str]) -> list[str]:
    """``command`` on machine ``name``, whose own host name resolves to nothing."""
    script = f'hostname {name}.invalid; exec "$@"'
    return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", script, "sh", *command]


def train(machines: tuple[str, str], folder: Path, saved: Path) -> list[subprocess.CompletedProcess[str]]:
    """Start both machines and wait for both."""
    (folder / "train.py").write_text(SCRIPT)
    started = []
    for name, cable, address in zip(machines, "ab", (FIRST, SECOND), strict=True):
        own = [sys.executable, "-m", "autotune", "run", "--profile", str(saved), "torchrun", "--nnodes=2"]
        own += ["--rdzv-backend=c10d", f"--rdzv-endpoint={FIRST}:29400", f"--rdzv-conf=is_host={int(address == FIRST)}"]
        own += [f"--local-addr={address}", "--nproc-per-node=2", "train.py", str(folder)]
        base = os.environ | {"GLOO_SOCKET_IFNAME": f"at{os.getpid()}{cable}"}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(inside(name, own), stdout=pipe, stderr=pipe, text=True, cwd=folder, env=base))
    done = []
    try:
        for process in started:
            out, err = process.communicate(timeout=PATIENCE)
            done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    finally:
        for process in started:
            process.kill()
            process.wait()
    return done


def test_machines_share_the_global_batch_as_one_would(machines: tuple[str, str], tmp_path: Path) -> None:
    saved = profiles.write(tmp_path / "tuned.yaml", profile(Settings(processes=2, threads=1, batch_size=6)))
    for run in train(machines, tmp_path, saved):
        assert run.returncode == 0, run.stderr
        assert "2 machines x 2 processes share the global batch of 12" in run.stderr
    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    assert {found["world"] for found in seen} == {4}
    assert {found["threads"] for found in seen} == {1}
    assert all(found["interface"].startswith(f"at{os.getpid()}") for found in seen)
    assert all(found["weights"] == seen[0]["weights"] for found in seen)
    alone = tmp_path / "alone"
    alone.mkdir()
    plain = {"PATH": os.environ["PATH"], "HOME": str(alone), "AUTOTUNE_PROFILE": str(saved)}
    subprocess.run([sys.executable, str(tmp_path / "train.py"), str(alone)], check=True, env=plain, capture_output=True)
    expected = json.loads((alone / "0.json").read_text())["weights"]
    for found, wanted in zip(seen[0]["weights"], expected, strict=True):
        assert found == pytest.approx(wanted, rel=1e-5)
