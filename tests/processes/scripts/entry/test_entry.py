"""A user's own script under mpiexec and torchrun, unchanged; real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autotune.knobs.settings import Settings
from autotune.launch.command import command
from autotune.probes.software import mpiexec
from autotune.probes.system import System

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.torch


INTERRUPTED = """
import atexit, sys, threading
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    for_ever = threading.Event()
    threading.Thread(target=for_ever.wait).start()
    atexit.register(for_ever.wait)
    print("x" * 60_000, file=sys.stderr)  # mpiexec reads all of it
    raise KeyboardInterrupt
MPI.COMM_WORLD.Barrier()
"""
FORKS = """
import atexit, os, sys
from mpi4py import MPI
def say(line):  # at once: the output of two ranks is merged
    os.write(1, f"{line}\\n".encode())
atexit.register(lambda: say("handler of child" if child == 0 else "handler of parent"))
child = os.fork()
if child == 0:
    sys.exit(3)
say(f"child: {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
MPI.COMM_WORLD.Barrier()
"""


def start(backend: str, script: str | Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Two processes of a script of this folder over ``backend``, by the very command that `autotune run` prints."""
    path = str(Path(__file__).parent / script)
    line = command(
        Settings(processes=2, backend=backend),
        path,
        [str(argument) for argument in arguments],
        sys.executable,
        mpiexec=mpiexec(System()) or "mpiexec",
    )
    own = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(line, env=own, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.mpi
def test_every_call_of_torch_distributed() -> None:
    done = start("mpi", "mpi_calls.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("every call is right") == 2


@pytest.mark.mpi
def test_a_users_own_script_trains_the_same_over_mpi(tmp_path: Path) -> None:
    found = {}
    for backend in ("gloo", "mpi"):
        folder = tmp_path / backend
        folder.mkdir()
        done = start(backend, "user_ddp.py", folder, "well")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("is done") == 2
        found[backend] = [json.loads((folder / f"well{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["backend"] for rank in found["gloo"]] == ["gloo", "gloo"]
    assert [rank["backend"] for rank in found["mpi"]] == ["mpi4py", "mpi4py"]
    wanted = found["gloo"][0]["parameters"]
    for rank in found["mpi"]:
        for ours, theirs in zip(rank["parameters"], wanted, strict=True):
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5, atol=1e-6)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("how", "code", "words"), [("raises", 1, "KeyError: 'label of sample 3'"), ("exits", 7, ""), ("is killed", 9, "")]
)
def test_one_failing_rank_ends_all_with_its_own_error(tmp_path: Path, how: str, code: int, words: str) -> None:
    done = start("mpi", "user_ddp.py", tmp_path, how)
    assert done.returncode == code, "of the rank that failed, not of one that mpiexec killed"
    assert words in done.stderr
    assert done.stderr.count("Traceback") == (1 if words else 0)
    assert "entry/__main__.py" not in done.stderr, "a traceback starts in the user's file"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.mpi
def test_an_interrupted_rank_ends_all_at_once(tmp_path: Path) -> None:
    """Its threads and exit handlers are not waited for."""
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    done = start("mpi", script)
    assert done.returncode == signal.SIGINT
    assert done.stderr.count("\nKeyboardInterrupt\n") == done.stderr.count("Traceback") == 1


@pytest.mark.mpi
def test_a_forked_process_leaves_mpi_to_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FORKS)
    done = start("mpi", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(["child: 3", "handler of parent"] * 2)
